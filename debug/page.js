"use strict";
(() => {
	const live = document.getElementById("live");
	const note = document.getElementById("note");
	const pause = document.getElementById("pause");
	const every = 1000 * document.documentElement.dataset.refresh;
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
		for (const { name } of [...node.attributes]) {
			if (!wanted.hasAttribute(name)) {
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

	// A row may have moved: the focus goes with it.
	function becomeWithFocus(wanted) {
		const at = document.activeElement;
		const href = live.contains(at) ? at.getAttribute("href") : null;
		become(live, wanted);
		if (href === null || document.activeElement.getAttribute("href") === href) {
			return;
		}
		for (const link of live.querySelectorAll("a")) {
			if (link.getAttribute("href") === href) {
				link.focus({ preventScroll: true });
				return;
			}
		}
	}

	async function refresh() {
		// Whoever has selected a key wants to copy it.
		if (paused || document.hidden || !getSelection().isCollapsed) {
			return;
		}
		try {
			const response = await fetch(location.href, {
				headers: { Accept: "text/html" },
				cache: "no-store",
				signal: AbortSignal.timeout(4 * every),
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

	async function loop() {
		clearTimeout(timer);
		await refresh();
		clearTimeout(timer);
		timer = setTimeout(loop, every);
	}

	pause.hidden = false;
	pause.addEventListener("click", () => {
		paused = !paused;
		pause.textContent = paused ? "Go on" : "Pause";
		if (!paused) {
			loop();
		}
	});
	document.addEventListener("visibilitychange", () => {
		if (!document.hidden) {
			loop();
		}
	});
	timer = setTimeout(loop, every);
})();
