"""Draws charts: lines over time, sparklines and bars, as SVG without inline style."""
