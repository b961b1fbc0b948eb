// The denoising trace: block by block, what each forward pass of the model settled.
'use strict';
(() => {
  const { h } = Dice;
  const EVERY = 180; // milliseconds a pass while it plays

  /** Numbers the passes of all blocks in a row: for each token the pass that settled it, and the blocks with their passes. */
  function order(tokens) {
    const passes = new Map();
    for (const token of tokens) passes.set(token.block, Math.max(passes.get(token.block) ?? 0, token.step + 1));
    const blocks = [];
    const before = new Map();
    let total = 0;
    for (const block of [...passes.keys()].sort((a, b) => a - b)) {
      before.set(block, total);
      blocks.push({ first: total + 1, passes: passes.get(block) });
      total += passes.get(block);
    }
    return { settled: tokens.map((token) => before.get(token.block) + token.step), before, blocks, total };
  }

  const mask = (text) => text.replace(/\S/gu, '\u2591');

  /** The player of one trace. `shown` is the pass it starts at; the default is the last one. */
  Dice.tracePlayer = (trace) => {
    const { settled, before, blocks, total } = order(trace.tokens);
    const code = h('pre', { class: 'trace code', tabindex: '0', 'aria-label': 'The candidate at this pass' });
    const spans = trace.tokens.map(() => h('span'));
    code.append(...spans);
    const where = h('output', { class: 'quiet' });
    const slider = h('input', { type: 'range', id: 'dice-pass', min: '0', max: String(total), value: String(total), 'aria-label': 'Forward pass', oninput: () => draw(), onkeydown: byBlock });
    const play = h('button', { type: 'button', onclick: () => (timer ? stop() : start()) }, 'Play');
    const step = (words, label, by) => h('button', { type: 'button', 'aria-label': label, title: label, onclick: () => go(by) }, words);
    let timer = null;

    function draw() {
      const pass = Number(slider.value);
      let done = 0;
      trace.tokens.forEach((token, index) => {
        const is = settled[index] < pass;
        const begun = before.get(token.block) < pass;
        done += is;
        const text = index === 0 ? token.text.replace(/^\n/, '') : token.text;
        spans[index].textContent = is ? text : begun || /^\s*$/.test(text) ? mask(text) : '';
        spans[index].className = !is ? 'masked' : settled[index] === pass - 1 && pass < total ? 'fresh' : '';
      });
      const now = blocks.findLastIndex((block) => block.first <= pass);
      const at = now < 0 ? 'before the first block' : `block ${now + 1} of ${blocks.length}, pass ${pass - blocks[now].first + 1} of ${blocks[now].passes}`;
      const words = `${at}: ${done} of ${trace.tokens.length} tokens settled`;
      where.textContent = words;
      slider.setAttribute('aria-valuetext', words);
    }

    /** To the end of the next block, or of the one before. */
    function go(by) {
      const ends = [0, ...blocks.map((block) => block.first + block.passes - 1)];
      const pass = Number(slider.value);
      slider.value = String(by > 0 ? ends.find((end) => end > pass) ?? total : ends.findLast((end) => end < pass) ?? 0);
      draw();
    }

    function byBlock(event) {
      if (event.key !== 'PageDown' && event.key !== 'PageUp') return;
      event.preventDefault();
      go(event.key === 'PageDown' ? 1 : -1);
    }

    function start() {
      if (Number(slider.value) >= total) slider.value = '0';
      play.textContent = 'Pause';
      timer = setInterval(() => {
        slider.value = String(Number(slider.value) + 1);
        draw();
        if (Number(slider.value) >= total) stop();
      }, EVERY);
      draw();
    }

    function stop() {
      clearInterval(timer);
      timer = null;
      play.textContent = 'Play';
    }

    draw();
    return h('div', null,
      h('div', { class: 'bar' }, play, step('\u2039 Block', 'Previous block', -1), step('Block \u203a', 'Next block', 1), slider),
      h('p', null, where),
      code,
      h('p', { class: 'quiet' }, `Blocks of ${trace.block_size} tokens, each settled in as many passes as the model needed. Highlighted: settled by this pass. Keys: arrows by pass, Page Up and Page Down by block.`));
  };
})();
