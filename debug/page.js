"use strict";
(() => {
	const live = document.getElementById("live");
	const note = document.getElementById("note");
	const done = document.getElementById("done");
	const pauseButton = document.getElementById("pause");
	// every is how often the page refreshes itself, in seconds. It is undefined if that would take long.
	const every = () => live.dataset.refresh;
	let paused = false;
	let timer;

	// become makes a node like another one and leaves alone what is alike already, so that the page keeps
	// its scroll positions and does not flicker.
	function become(node, wanted) {
		if (node.isEqualNode(wanted)) {
			return;
		}
		if (node.nodeName !== wanted.nodeName) {
			node.replaceWith(document.importNode(wanted, true));
			return;
		}
		if (node.nodeType !== Node.ELEMENT_NODE) {
			node.nodeValue = wanted.nodeValue;
			return;
		}
		// What a reader has unfolded stays so, as long as it belongs to the same key.
		const unfolded = node.nodeName === "DETAILS" && node.dataset.of === wanted.dataset.of;
		for (const { name } of [...node.attributes]) {
			if (!wanted.hasAttribute(name) && !(unfolded && name === "open")) {
				node.removeAttribute(name);
			}
		}
		for (const { name, value } of wanted.attributes) {
			if (node.getAttribute(name) !== value) {
				node.setAttribute(name, value);
			}
		}
		const have = [...node.childNodes];
		const want = [...wanted.childNodes];
		want.forEach((child, i) => {
			if (i < have.length) {
				become(have[i], child);
			} else {
				node.append(document.importNode(child, true));
			}
		});
		have.slice(want.length).forEach((child) => child.remove());
	}

	// name is what a link or a button is known by, wherever its row has moved.
	const name = (element) => element.getAttribute("href") ?? JSON.stringify({ ...(element.closest("details") ?? element).dataset });

	// becomeWithFocus keeps the focus on its link or button. If that is gone, the one that has taken its place in the section has
	// the focus, or else the section, or the page.
	function becomeWithFocus(wanted) {
		const at = document.activeElement;
		if (at === null || at === live || !live.contains(at)) {
			become(live, wanted);
			return;
		}
		const focusable = (of) => [...of.querySelectorAll("a, button, summary, input")];
		const was = name(at);
		const section = at.closest("[aria-labelledby]")?.getAttribute("aria-labelledby");
		const sectionNow = () => document.getElementById(section)?.closest("[aria-labelledby]") ?? live;
		const place = focusable(sectionNow()).indexOf(at);
		become(live, wanted);
		if (document.activeElement === at && name(at) === was) {
			return;
		}
		const all = focusable(live);
		const beside = focusable(sectionNow());
		const next = all.find((e) => name(e) === was) ?? beside[Math.min(place, beside.length - 1)] ?? live;
		next.focus({ preventScroll: true });
	}

	// selected has the names of the boxes that are ticked: a refresh moves rows, and boxes do not move with them.
	let selected = new Set();
	const nameOfBox = (box) => `${box.closest("section").getAttribute("aria-labelledby")} ${box.dataset.id} ${box.dataset.key}`;
	const boxesOf = (section) => [...section.querySelectorAll(".box")];

	// showSelected ticks the boxes that were ticked before a refresh, and shows what can be done to several keys.
	// What has left the page is not selected any more.
	function showSelected() {
		const there = new Set();
		for (const section of live.querySelectorAll("section:has(.box)")) {
			const boxes = boxesOf(section);
			for (const box of boxes) {
				if (box.checked = selected.has(nameOfBox(box))) {
					there.add(nameOfBox(box));
				}
			}
			const n = boxes.filter((box) => box.checked).length;
			const all = section.querySelector(".all");
			all.checked = n === boxes.length;
			all.indeterminate = n > 0 && n < boxes.length;
			section.querySelector(".selected").hidden = n === 0;
		}
		selected = there;
	}

	async function refresh() {
		// A reader who has selected a key wants to copy it.
		if (paused || document.hidden || !getSelection().isCollapsed) {
			return;
		}
		try {
			const response = await fetch(location.href, {
				headers: { Accept: "text/html" },
				cache: "no-store",
				signal: AbortSignal.timeout(65_000),
			});
			const page = new DOMParser().parseFromString(await response.text(), "text/html");
			const fresh = page.getElementById("live");
			if (fresh === null) {
				throw new Error("not this page");
			}
			if (!paused) {
				becomeWithFocus(fresh);
				showSelected();
				document.title = page.title;
			}
			note.textContent = "";
		} catch {
			note.textContent = "The program does not answer. This is what it said last.";
		}
	}

	function wait() {
		clearTimeout(timer);
		pauseButton.hidden = every() === undefined;
		if (!pauseButton.hidden) {
			timer = setTimeout(loop, 1000 * every());
		}
	}

	async function loop() {
		clearTimeout(timer);
		if (every() !== undefined) {
			await refresh();
		}
		wait();
	}

	// answerOf returns the object that a response has. Something else may answer: a login page, a gateway, or a handler without actions.
	async function answerOf(response) {
		const answer = response.headers.get("Content-Type")?.includes("json") ? await response.json() : {};
		if (answer.error === undefined && answer.text === undefined && answer.count === undefined) {
			const what = response.ok ? "Something else has answered, with" : "The program did not do it:";
			return { error: `${what} status ${response.status}.` };
		}
		return answer;
	}

	// confirmed asks whether to do what a button is for. To an action on a set of keys it adds their number.
	async function confirmed(form) {
		const { action, queue, key, called: group, of, error, given_up, for: lasts } = Object.fromEntries(form);
		const called = key || "(empty)";
		let lost = of === "given_up" || of === "all" || given_up !== undefined;
		let n = form.getAll("key").length;
		let more = "";
		if (of !== undefined) {
			const query = new URLSearchParams({ queue, count: of, error });
			const response = await fetch(`${location.pathname}?${query}`, {
				headers: { Accept: "application/json" },
				cache: "no-store",
			});
			const answer = await answerOf(response);
			if (answer.error !== undefined) {
				note.textContent = answer.error;
				return false;
			}
			n = answer.count;
			more = answer.more ? "at least " : "";
			form.set("count", n);
		}
		const keys = of === undefined && n === 1 ? called : `${more}${n.toLocaleString("en")} ${n === 1 ? "key" : "keys"}`;
		const s = n === 1 ? "" : "s";
		switch (action) {
			case "retry": return of === undefined && n === 1 || confirm(`Retry ${keys}?`);
			case "remove": return confirm(`Remove ${keys} from the queue, and forget ${n === 1 ? "its" : "their"} failures?`);
			case "release": return confirm(`End the hold${s} of ${keys}?`);
			case "cancel": return confirm(`Cancel the handler${s} of ${keys}?`);
			case "forget": return confirm(`Forget the failures of ${keys}?${lost ? " That is the only record of what was given up: nothing adds it again by itself." : ""}`);
			case "pause": return confirm(`Pause queue ${document.querySelector("h1").textContent}${lasts === undefined ? "" : ` for ${lasts}`}? It hands out nothing until ${lasts === undefined ? "it is resumed" : "then, or until it is resumed"}.`);
			case "pause_group": return confirm(`Pause group ${group || "(empty)"}?`);
		}
		return true;
	}

	// act asks for what a button is for. The header is one that forms and other sites cannot send.
	async function act(button) {
		const { selected: ofSelected, ...fields } = button.dataset;
		const form = new URLSearchParams(fields);
		if (ofSelected !== undefined) {
			for (const box of boxesOf(button.closest("section")).filter((box) => box.checked)) {
				Object.entries(box.dataset).forEach(([field, value]) => form.append(field, value));
			}
		}
		if (button.ariaDisabled === "true") {
			return; // A disabled button would lose the focus.
		}
		button.ariaDisabled = "true";
		done.textContent = "";
		try {
			if (await confirmed(form)) {
				const response = await fetch(location.pathname, {
					method: "POST",
					headers: { "X-Workqueue-Action": "1", Accept: "application/json" },
					body: form,
				});
				const answer = await answerOf(response);
				if (ofSelected !== undefined && answer.error === undefined) {
					selected.clear();
					showSelected();
				}
				await refresh();
				note.textContent = answer.error ?? "";
				done.textContent = answer.error === undefined ? answer.text ?? "" : "";
			}
		} catch {
			note.textContent = "The program does not answer.";
		}
		button.ariaDisabled = null;
	}

	document.documentElement.classList.add("js");
	live.addEventListener("click", (event) => {
		const button = event.target.closest("[data-action]");
		if (button !== null) {
			act(button);
		}
	});
	live.addEventListener("change", ({ target }) => {
		if (!target.matches(".box, .all")) {
			return;
		}
		for (const box of target.matches(".all") ? boxesOf(target.closest("section")) : [target]) {
			selected[target.checked ? "add" : "delete"](nameOfBox(box));
		}
		showSelected();
	});
	pauseButton.addEventListener("click", () => {
		paused = !paused;
		pauseButton.textContent = paused ? "Refresh again" : "Stop refreshing";
		if (!paused) {
			loop();
		}
	});
	document.addEventListener("visibilitychange", () => {
		if (!document.hidden) {
			loop();
		}
	});
	wait();
})();
