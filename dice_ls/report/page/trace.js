// The denoising trace: block by block, what each forward pass of the model settled.
'use strict';
(() => {
  const { h } = Dice;
  const EVERY = 180; // milliseconds a pass while it plays

  /** Numbers the passes of all blocks in a row; returns for each token the pass that settled it, and how many there are. */
  function order(tokens) {
    const passes = new Map();
    for (const token of tokens) passes.set(token.block, Math.max(passes.get(token.block) ?? 0, token.step + 1));
    const before = new Map();
    let total = 0;
    for (const block of [...passes.keys()].sort((a, b) => a - b)) {
      before.set(block, total);
      total += passes.get(block);
    }
    return { settled: tokens.map((token) => before.get(token.block) + token.step), before, total };
  }

  const mask = (text) => text.replace(/\S/gu, '\u2591');

  /** The player of one trace. `shown` is the pass it starts at; the default is the last one. */
  Dice.tracePlayer = (trace) => {
    const { settled, before, total } = order(trace.tokens);
    const code = h('pre', { class: 'trace code', tabindex: '0', 'aria-label': 'The candidate at this pass' });
    const spans = trace.tokens.map(() => h('span'));
    code.append(...spans);
    const where = h('output', { class: 'quiet' });
    const slider = h('input', { type: 'range', min: '0', max: String(total), value: String(total), 'aria-label': 'Forward pass', oninput: () => draw() });
    const play = h('button', { type: 'button', onclick: () => (timer ? stop() : start()) }, 'Play');
    let timer = null;

    function draw() {
      const pass = Number(slider.value);
      let done = 0;
      trace.tokens.forEach((token, index) => {
        const is = settled[index] < pass;
        const begun = before.get(token.block) < pass;
        done += is;
        spans[index].textContent = is ? token.text : begun || /^\s*$/.test(token.text) ? mask(token.text) : '';
        spans[index].className = !is ? 'masked' : settled[index] === pass - 1 && pass < total ? 'fresh' : '';
      });
      const words = `pass ${pass} of ${total}: ${done} of ${trace.tokens.length} tokens settled`;
      where.textContent = words;
      slider.setAttribute('aria-valuetext', words);
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
      h('div', { class: 'bar' }, play, slider, where),
      code,
      h('p', { class: 'quiet' }, `Blocks of ${trace.block_size} tokens, each settled in as many passes as the model needed; highlighted: settled by this pass.`));
  };
})();
