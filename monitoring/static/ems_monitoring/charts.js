// Draws the charts with uPlot, over the drawing of the server: hover for values, drag to zoom.
"use strict";
(function () {
    const DASHES = [[], [6, 3], [2, 3], [10, 4], [8, 3, 2, 3], [4, 2]];
    const DURATIONS = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 432000];
    const HEIGHT = 180;
    const FLAG_HEIGHT = 24;
    const zooms = {}; // of each chart, by its id: it survives a refresh
    let drawn = [];

    function variable(name) {
        return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    }

    function number(value) {
        const digits = Number.isInteger(value) || Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 1 ? 1 : 2;
        return value.toLocaleString(document.documentElement.lang || "en", { maximumFractionDigits: digits });
    }

    function duration(value) {
        const seconds = Math.floor(value), minutes = Math.floor(seconds / 60), hours = Math.floor(minutes / 60);
        if (hours >= 24) {
            return `${Math.floor(hours / 24)} d ${hours % 24} h`;
        }
        if (hours) {
            return `${hours} h ${minutes % 60} min`;
        }
        return minutes ? `${minutes} min ${seconds % 60} s` : `${seconds} s`;
    }

    function shown(value, unit) {
        if (value === null || value === undefined) {
            return "–";
        }
        return unit === "duration" ? duration(value) : number(value) + unit;
    }

    // At an axis all is round: "3 h", not "3 h 0 min".
    function mark(value, unit) {
        return unit === "duration" ? shown(value, unit).replace(/ 0 (s|min|h)$/, "") : shown(value, unit);
    }

    // Where each line is drawn: in a stacked chart, on the lines before it.
    function layers(chart) {
        const values = chart.lines.map((line) => line.values);
        if (!chart.stacked) {
            return values;
        }
        const heights = chart.times.map(() => 0);
        const isKnown = chart.times.map((_time, at) => values.some((line) => line[at] !== null));
        return values.map((line) => line.map((value, at) => (isKnown[at] ? (heights[at] += value || 0) : null)));
    }

    // The flags of the server, over this drawing; each where its time is, hidden where that is not shown.
    function flag(plot, source) {
        const flags = source.cloneNode(true);
        plot.over.append(flags);
        return () => {
            const { min, max } = plot.scales.x;
            if (!(max > min)) {
                return;
            }
            for (const one of flags.querySelectorAll(".ems-flag")) {
                // What has happened since the last value stands at the end.
                const end = plot.data[0][plot.data[0].length - 1];
                const at = Math.min(Math.max(Number(one.dataset.at), plot.data[0][0]), end);
                one.toggleAttribute("hidden", at < min || at > max);
                one.setAttribute("x", `${(100 * (at - min)) / (max - min)}%`);
            }
        };
    }

    /** Return which values of a line are between two unknown ones: each is a point. */
    function alone(plot, n) {
        const values = plot.data[n];
        const isKnown = (at) => values[at] !== null && values[at] !== undefined;
        const found = [...values.keys()].filter((at) => isKnown(at) && !isKnown(at - 1) && !isKnown(at + 1));
        return found.length ? found : null;
    }

    function draw(figure) {
        const source = figure.querySelector("script[type='application/json']");
        if (!source) {
            return;
        }
        const chart = JSON.parse(source.textContent);
        const isLocal = document.getElementById("ems-live").dataset.zone === "browser";
        const axis = { stroke: variable("--body-quiet-color"), grid: { stroke: variable("--hairline-color"), width: 1 }, ticks: { show: false }, font: "11px sans-serif" };
        const series = chart.lines.map((line, n) => ({
            label: line.label,
            stroke: variable(`--ems-line-${n % 6}`),
            fill: chart.stacked ? `${variable(`--ems-line-${n % 6}`)}4d` : undefined,
            width: 2,
            dash: DASHES[n % 6],
            spanGaps: false,
            points: { show: false, filter: alone, size: 6 },
            value: (_plot, value, _series, at) => shown(chart.stacked && at !== null ? line.values[at] : value, chart.unit),
        }));
        const flags = figure.querySelector(".ems-axes .ems-flags");
        let place = () => {};
        const bands = chart.stacked ? chart.lines.slice(1).map((_line, n) => ({ series: [n + 2, n + 1] })) : [];
        const plot = new uPlot(
            {
                width: figure.clientWidth,
                height: HEIGHT,
                padding: [flags ? FLAG_HEIGHT : null, null, null, null],
                tzDate: isLocal ? undefined : (at) => uPlot.tzDate(new Date(at * 1000), "Etc/UTC"),
                cursor: { drag: { x: true, y: false }, sync: { key: "ems" } },
                scales: { y: { range: (_plot, _low, high) => [0, high > 0 ? high * 1.05 : 1] } },
                bands,
                series: [{ label: figure.querySelector(".ems-figures th").textContent, value: isLocal ? "{YYYY}-{MM}-{DD} {HH}:{mm}" : "{YYYY}-{MM}-{DD} {HH}:{mm} UTC" }, ...series],
                axes: [
                    { ...axis, size: 30, values: [[86400, "{D} {MMM}", null, null, null, null, null, null, 1], [60, "{HH}:{mm}", null, null, null, null, null, null, 1], [1, "{HH}:{mm}:{ss}", null, null, null, null, null, null, 1]] },
                    { ...axis, size: 76, ...(chart.unit === "duration" ? { incrs: DURATIONS } : {}), values: (_plot, values) => values.map((value) => mark(value, chart.unit)) },
                ],
                hooks: {
                    setScale: [
                        (self, key) => {
                            if (key !== "x" || !self.data[0].length) {
                                return;
                            }
                            const { min, max } = self.scales.x;
                            const isWhole = min <= self.data[0][0] && max >= self.data[0][self.data[0].length - 1];
                            zooms[figure.id] = isWhole ? undefined : { min, max };
                            place();
                        },
                    ],
                },
            },
            [chart.times, ...layers(chart)],
            figure.querySelector(".ems-plot-place"),
        );
        if (flags) {
            place = flag(plot, flags);
            place();
        }
        if (zooms[figure.id]) {
            plot.setScale("x", zooms[figure.id]);
        }
        figure.classList.add("ems-drawn");
        drawn.push([plot, figure]);
    }

    function show() {
        drawn.forEach(([plot]) => plot.destroy());
        drawn = [];
        document.querySelectorAll(".ems-chart").forEach(draw);
    }

    function fit() {
        for (const [plot, figure] of drawn) {
            plot.setSize({ width: figure.querySelector(".ems-plot-place").clientWidth, height: HEIGHT });
        }
    }

    // Who points at a flag or its line in the list sees it in all charts; who follows it finds it open.
    function point(event) {
        const place = event.target.closest && event.target.closest("[data-flag]");
        for (const one of document.querySelectorAll("[data-flag]")) {
            one.classList.toggle("ems-flag-on", Boolean(place) && one.dataset.flag === place.dataset.flag);
        }
    }

    function follow(event) {
        const link = event.target.closest && event.target.closest("a[href^='#ems-flag-']");
        const place = link && document.getElementById(link.getAttribute("href").slice(1));
        const closed = place && place.closest("details");
        if (closed) {
            closed.open = true;
        }
    }

    document.addEventListener("mouseover", point);
    document.addEventListener("focusin", point);
    document.addEventListener("click", follow);
    document.addEventListener("ems:shown", show);
    window.addEventListener("resize", fit);
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
    new MutationObserver(show).observe(document.documentElement, { attributeFilter: ["data-theme"] });
})();
