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
		const focusable = (of) => [...of.querySelectorAll("a, button, summary")];
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

	async function refresh() {
		// A reader who has selected a key wants to copy it.
		if (paused || document.hidden || !getSelection().isCollapsed) {
			return;
		}
		try {
			const response = await fetch(location.href, {
				headers: { Accept: "text/html" },
				cache: "no-store",
				signal: AbortSignal.timeout(20_000),
			});
			const page = new DOMParser().parseFromString(await response.text(), "text/html");
			const fresh = page.getElementById("live");
			if (fresh === null) {
				throw new Error("not this page");
			}
			if (!paused) {
				becomeWithFocus(fresh);
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

	// confirmed asks whether to do what a button is for. To an action on many keys it adds their number.
	async function confirmed(form) {
		const { action, queue, key, group, of, error, given_up, for: lasts } = Object.fromEntries(form);
		const called = key || "(empty)";
		const lost = "That is the only record of what was given up: nothing adds it again by itself.";
		if (of !== undefined) {
			const query = new URLSearchParams({ queue, count: of, error });
			const response = await fetch(`${location.pathname}?${query}`, {
				headers: { Accept: "application/json" },
				cache: "no-store",
			});
			const { count, more, error: failure } = await answerOf(response);
			if (failure !== undefined) {
				note.textContent = failure;
				return false;
			}
			form.set("count", count);
			const keys = `${more ? "at least " : ""}${count.toLocaleString("en")} ${count === 1 ? "key" : "keys"}`;
			if (action === "retry") {
				return confirm(`Retry ${keys}?`);
			}
			return confirm(`Forget the failures of ${keys}?${of === "failing" ? "" : ` ${lost}`}`);
		}
		switch (action) {
			case "remove": return confirm(`Remove ${called} from the queue, and forget its failures?`);
			case "release": return confirm(`End the hold of ${called}?`);
			case "cancel": return confirm(`Cancel the handler of ${called}?`);
			case "forget": return confirm(`Forget the failures of ${called}?${given_up === undefined ? "" : ` ${lost}`}`);
			case "pause": return confirm(`Pause queue ${document.querySelector("h1").textContent}${lasts === undefined ? "" : ` for ${lasts}`}? It hands out nothing until ${lasts === undefined ? "it is resumed" : "then, or until it is resumed"}.`);
			case "pause_group": return confirm(`Pause group ${group || "(empty)"}?`);
		}
		return true;
	}

	// act asks for what a button is for. The header is one that forms and other sites cannot send.
	async function act(button) {
		const form = new URLSearchParams({ ...button.dataset });
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
