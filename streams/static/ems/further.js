// Goes on with a search in older messages: one request after the other, a bounded number, until
// enough is found or somebody stops it.
"use strict";
(function () {
    const id = "ems-further";
    let stopping = null;
    let whole = 0; // messages to be searched when it began

    function part(name) {
        return document.querySelector(`#${id} [data-${name}]`);
    }

    function hits() {
        return document.querySelectorAll("#ems-found tbody tr").length;
    }

    function show(isRunning) {
        const older = part("older");
        if (!older) {
            return;
        }
        older.hidden = isRunning;
        part("stop").hidden = part("done").hidden = !isRunning;
        part("done").max = whole;
        part("done").value = whole - Number(document.getElementById(id).dataset.left);
    }

    // Takes what a page has found; false if it is a list that is to be opened as it is.
    function take(page) {
        const found = page.getElementById("ems-found");
        if (!found && page.querySelector("#result_list tbody tr")) {
            return false;
        }
        const here = document.getElementById("ems-found");
        const rows = found ? found.querySelectorAll("tbody tr") : [];
        if (rows.length && hits()) {
            here.querySelector("tbody").append(...rows);
        } else if (found && !hits()) {
            here.replaceWith(found);
        }
        document.getElementById(id).replaceWith(page.getElementById(id));
        document.dispatchEvent(new CustomEvent("ems:found"));
        return true;
    }

    async function go(before) {
        const { steps, most, left } = document.getElementById(id).dataset;
        stopping = new AbortController();
        whole = Math.max(whole, Number(left));
        for (let step = 0; step < Number(steps) && part("older") && hits() < before + Number(most); step++) {
            show(true);
            if (document.hidden) {
                await new Promise((done) => document.addEventListener("visibilitychange", done, { once: true }));
            }
            const url = part("older").href;
            const response = await fetch(url, { credentials: "same-origin", redirect: "error", signal: stopping.signal });
            if (!response.ok) {
                throw new Error(String(response.status));
            }
            if (!take(new DOMParser().parseFromString(await response.text(), "text/html"))) {
                window.location.assign(url);
                return;
            }
        }
    }

    function begin(before) {
        go(before).catch(() => {}).finally(() => show(false));
    }

    document.addEventListener("click", (event) => {
        if (event.target.closest(`#${id} [data-stop]`)) {
            stopping.abort();
        } else if (event.target.closest(`#${id} [data-older]`) && document.getElementById("ems-found")) {
            event.preventDefault();
            begin(hits());
        }
    });
    if (part("older") && !document.querySelector("#result_list tbody tr")) {
        begin(0);
    }
})();
