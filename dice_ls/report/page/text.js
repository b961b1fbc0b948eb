// Elements, numbers and words. Text from files and models only ever becomes text, never markup.
'use strict';
globalThis.Dice = (() => {
  const SVG = 'http://www.w3.org/2000/svg';

  const VERDICTS = {
    verified: ['good', 'verified'],
    correct_unmeasured: ['good', 'correct, not timed'],
    no_gain: ['fair', 'correct, no faster'],
    mismatch: ['bad', 'wrong result'],
    build_error: ['bad', 'does not compile'],
    deceptive: ['bad', 'not an honest rewrite'],
    unsafe: ['bad', 'not run: reaches for the system'],
    timeout: ['bad', 'took too long'],
    crash: ['bad', 'crashed'],
    no_plan: ['fair', 'cannot be checked'],
    infra_error: ['fair', 'this machine failed'],
  };

  function fill(element, attributes, children) {
    for (const [name, value] of Object.entries(attributes ?? {})) {
      if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
      else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? '' : value);
    }
    element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
    return element;
  }

  /** An HTML element; attributes that begin with `on` are listeners. */
  const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);

  /** An SVG element. */
  const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

  /** Three significant digits: `0.0864`, `12.3`, `1.2e-7`. */
  function digits(value) {
    if (value === null || value === undefined) return '';
    if (value === 0) return '0';
    const size = Math.abs(value);
    if (size < 1e-3 || size >= 1e6) return value.toExponential(1).replace('e+', 'e');
    return String(Number(value.toPrecision(3)));
  }

  const ms = (value) => (value === null || value === undefined ? '' : `${digits(value)} ms`);
  const ratio = (value) => (value === null || value === undefined ? '' : `${value.toFixed(2)}x`);
  const percent = (value) => `${Math.round(value * 100)} %`;

  function rate(bytesPerSecond) {
    return bytesPerSecond >= 1e12 ? `${digits(bytesPerSecond / 1e12)} TB/s` : `${digits(bytesPerSecond / 1e9)} GB/s`;
  }

  function verdictWords(verdict) {
    return verdict ? (VERDICTS[verdict.verdict] ?? ['fair', verdict.verdict]) : ['quiet', 'being checked'];
  }

  /** Why a candidate was not offered, or what it was compared on. */
  function why(verdict) {
    if (!verdict) return '';
    const reason = (verdict.reason ?? '').trim().split('\n')[0];
    const rule = verdict.rule ? `${verdict.rule}: ` : '';
    return rule + (reason || (verdict.trials ? `${verdict.trials} inputs compared` : ''));
  }

  /** Candidates in their order, those with the same code and verdict as one: `same` has the numbers of all of them. */
  function distinct(candidates) {
    const found = new Map();
    for (const one of candidates) {
      const key = `${one.verdict?.verdict} ${one.core.replace(/\s+/g, ' ').trim()}`;
      if (found.has(key)) found.get(key).same.push(one.index);
      else found.set(key, { ...one, same: [one.index] });
    }
    return [...found.values()];
  }

  /** `0-3, 5`. */
  function numbers(all) {
    const runs = [];
    for (const one of [...all].sort((a, b) => a - b)) {
      if (runs.length > 0 && runs.at(-1)[1] === one - 1) runs.at(-1)[1] = one;
      else runs.push([one, one]);
    }
    return runs.map(([from, to]) => (from === to ? `${from}` : `${from}${to === from + 1 ? ', ' : '-'}${to}`)).join(', ');
  }

  return { h, s, digits, ms, ratio, percent, rate, verdictWords, why, distinct, numbers };
})();
