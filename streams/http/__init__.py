"""Answers over HTTP: the API for services and scripts in any language (extra ``api``)."""
