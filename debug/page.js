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
	let refreshes = 0; // how many have begun
	let isSilent = false; // The note says that the program does not answer.
	const acting = new Set(); // the names of the buttons whose actions go on

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
	const name = (element) =>
		element.getAttribute("href") ?? JSON.stringify({ ...(element.closest("details") ?? element).dataset });

	// becomeWithFocus keeps the focus on its link or button. If that is gone, the one that has taken its place
	// in the section has the focus, or else the page.
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

	// refresh shows the page as it is now: unless it mustShow, not to a reader who wants none of it, or who has
	// selected a key and wants to copy it.
	async function refresh(mustShow = false) {
		if (!mustShow && (paused || document.hidden || !getSelection().isCollapsed)) {
			return;
		}
		const mine = ++refreshes;
		try {
			const response = await fetch(location.href, {
				cache: "no-store",
				signal: AbortSignal.timeout(65_000),
			});
			const page = new DOMParser().parseFromString(await response.text(), "text/html");
			const fresh = page.getElementById("live");
			if (fresh === null) {
				throw new Error("not this page");
			}
			if (mine === refreshes && (mustShow || !paused)) {
				becomeWithFocus(fresh);
				document.title = page.title;
			}
			if (isSilent) {
				note.textContent = "";
				isSilent = false;
			}
		} catch {
			note.textContent = "The program does not answer. This is what it said last.";
			isSilent = true;
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

	// answerOf returns the object that a response has. Something else may answer: a login page, a gateway, or a
	// handler without actions.
	async function answerOf(response) {
		const isJSON = response.headers.get("Content-Type")?.includes("json");
		const answer = isJSON ? await response.json() : {};
		if (answer.error === undefined && answer.text === undefined && answer.count === undefined) {
			const what = response.ok ? "Something else has answered, with" : "The program did not do it:";
			return { error: `${what} status ${response.status}.` };
		}
		return answer;
	}

	// countOf returns how many keys an action on a set would be for.
	async function countOf(queue, set, error) {
		const query = new URLSearchParams({ queue, count: set, error, format: "json" });
		const response = await fetch(`${location.pathname}?${query}`, { cache: "no-store" });
		return await answerOf(response);
	}

	// question returns what to ask before an action on some keys, a group or the queue, or undefined.
	function question(action, of) {
		switch (action) {
			case "retry all": return `Retry ${of}?`;
			case "forget":
			case "forget all": return `Forget the failures of ${of}? Nothing else remembers a key that was given up.`;
			case "remove": return `Remove ${of} from the queue, and forget its failures?`;
			case "release": return `End the hold of ${of}?`;
			case "cancel": return `Cancel the handler of ${of}?`;
			case "pause": return `Pause queue ${of}? It hands out nothing meanwhile.`;
			case "pause_group": return `Pause group ${of}?`;
		}
	}

	// confirmed asks whether to do what a form is for. To an action on a set of keys it adds their number.
	async function confirmed(form) {
		const { action, queue, key, group, of: set, error, for: lasts } = Object.fromEntries(form);
		let asked;
		if (set !== undefined) {
			const { count, more, error: failed } = await countOf(queue, set, error);
			if (failed !== undefined) {
				note.textContent = failed;
				return false;
			}
			form.set("count", count);
			const keys = `${count.toLocaleString("en")} ${count === 1 ? "key" : "keys"}`;
			asked = question(`${action} all`, more ? `at least ${keys}` : keys);
		} else if (action === "pause") {
			const name = document.querySelector("h1").textContent;
			asked = question(action, lasts === undefined ? name : `${name} for ${lasts}`);
		} else {
			asked = question(action, (key ?? group) || "(empty)");
		}
		return asked === undefined || confirm(asked);
	}

	// act asks for what a button is for. The header is one that forms and other sites cannot send.
	async function act(button) {
		const form = new URLSearchParams(button.dataset);
		const which = name(button);
		if (acting.has(which)) {
			return;
		}
		acting.add(which);
		button.ariaDisabled = "true"; // A disabled button would lose the focus.
		note.textContent = "";
		done.textContent = "";
		try {
			if (await confirmed(form)) {
				const response = await fetch(location.pathname, {
					method: "POST",
					headers: { "X-Workqueue-Action": "1" },
					body: form,
				});
				const answer = await answerOf(response);
				await refresh(true);
				isSilent = false;
				note.textContent = answer.error ?? "";
				done.textContent = answer.error === undefined ? answer.text ?? "" : "";
			}
		} catch {
			note.textContent = "The program does not answer.";
			isSilent = true;
		}
		acting.delete(which);
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
