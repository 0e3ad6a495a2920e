// Looks again at the page, as often as its URL asks, and shows times in the browser's zone.
"use strict";
(function () {
    const pad = (number) => String(number).padStart(2, "0");
    const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    const FORMS = {
        "H:i:s": (at) => `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`,
        "H:i": (at) => `${pad(at.getHours())}:${pad(at.getMinutes())}`,
        "j M": (at) => `${at.getDate()} ${MONTHS[at.getMonth()]}`,
        "j M H:i": (at) => `${FORMS["j M"](at)} ${FORMS["H:i"](at)}`,
        "Y-m-d": (at) => `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())}`,
        "Y-m-d H:i": (at) => `${FORMS["Y-m-d"](at)} ${FORMS["H:i"](at)}`,
        "Y-m-d H:i:s": (at) => `${FORMS["Y-m-d"](at)} ${FORMS["H:i:s"](at)}`,
    };

    function live() {
        return document.getElementById("ems-live");
    }

    function showTimes() {
        if (live().dataset.zone !== "browser") {
            return;
        }
        for (const element of document.querySelectorAll("time.ems-time[data-form]")) {
            const form = FORMS[element.dataset.form];
            if (form) {
                element.textContent = form(new Date(element.dateTime));
            }
        }
    }

    function ready() {
        showTimes();
        document.dispatchEvent(new CustomEvent("ems:shown"));
    }

    // Whoever reads a table or fills in a form is not interrupted.
    function isBusy() {
        const active = document.activeElement;
        const isTyping = active && live().contains(active) && /^(INPUT|SELECT|TEXTAREA)$/.test(active.tagName);
        const selection = document.getSelection();
        return isTyping || (selection && !selection.isCollapsed);
    }

    async function look() {
        const response = await fetch(window.location.href, {
            credentials: "same-origin",
            redirect: "error",
            headers: { "X-Requested-With": "XMLHttpRequest" },
        });
        if (!response.ok) {
            throw new Error(String(response.status));
        }
        const found = new DOMParser().parseFromString(await response.text(), "text/html");
        const fresh = found.getElementById("ems-live");
        const old = live();
        for (const open of old.querySelectorAll("details[open][id]")) {
            const same = fresh.querySelector(`#${CSS.escape(open.id)}`);
            if (same) {
                same.open = true;
            }
        }
        const focused = document.activeElement && document.activeElement.getAttribute("href");
        old.replaceWith(fresh);
        if (focused) {
            const same = fresh.querySelector(`a[href="${CSS.escape(focused)}"]`);
            if (same) {
                same.focus({ preventScroll: true });
            }
        }
        ready();
    }

    async function next() {
        const seconds = Number(live().dataset.refresh);
        if (!seconds) {
            return;
        }
        await new Promise((done) => setTimeout(done, seconds * 1000));
        if (document.hidden) {
            await new Promise((done) => document.addEventListener("visibilitychange", done, { once: true }));
        }
        try {
            if (!isBusy()) {
                await look();
            }
            live().classList.remove("ems-stale");
        } catch (error) {
            live().classList.add("ems-stale");
        }
        next();
    }

    document.addEventListener("ems:found", showTimes);
    ready();
    next();
})();
