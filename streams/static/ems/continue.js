'use strict';
// Goes on with a plan of many rows, step by step, while the page is open.
document.getElementById('ems-continue').requestSubmit();
