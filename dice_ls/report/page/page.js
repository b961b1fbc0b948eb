// The evidence of one hole as a page: used by the editor's panel and by `dice report`.
'use strict';
(() => {
  const { h, digits, ms, ratio, percent, rate, verdictWords, why, distinct, numbers } = Dice;

  /** Host: what the page may ask for. Without one (a report) it copies by itself and applies nothing. */
  const NOBODY = { copy: null, apply: null, trace: null };

  class Page {
    constructor(root, host) {
      this.root = root;
      this.host = { ...NOBODY, ...host };
      this.traces = new Map();
      this.players = new Map();
      this.open = new Set();
      this.chosen = null;
      this.evidence = null;
    }

    show(evidence) {
      const same = this.evidence?.hole === evidence.hole;
      if (same && JSON.stringify(this.evidence) === JSON.stringify(evidence)) return; // nothing moves under the pointer
      if (!same) {
        this.open.clear();
        this.traces.clear();
        this.players.clear();
        this.chosen = null;
      }
      this.evidence = evidence;
      for (const trace of evidence.traces ?? []) this.traces.set(trace.candidate, trace);
      this.draw();
    }

    addTrace(trace) {
      if (!this.traces.has(trace.candidate)) this.traces.set(trace.candidate, trace);
      this.chosen = trace.candidate;
      this.draw();
      document.getElementById('dice-trace')?.scrollIntoView({ block: 'nearest' });
    }

    draw() {
      const focused = this.root.contains(document.activeElement) ? document.activeElement.id : '';
      this.root.replaceChildren(...[
        this.head(), this.table(), this.times(), this.roofline(), this.plan(), this.trace(),
      ].flat().filter(Boolean));
      if (focused) document.getElementById(focused)?.focus();
    }

    head() {
      const one = this.evidence;
      const facts = [
        ['Device', one.device],
        ['Model', one.checkpoint],
        ['Checked', one.when && one.when.replace('T', ' ').replace(/:\d\d(\.\d+)?\+00:00$/, ' UTC')],
        ['File', one.file],
      ].filter(([, value]) => value);
      return [
        h('h1', null, 'Evidence for ', h('code', null, one.name)),
        h('p', { class: 'summary', role: 'status' }, plain(one.summary)),
        one.stale && h('p', { class: 'stale' }, 'The code was edited since this check: what follows is about its earlier text and cannot be applied.'),
        this.best(),
        h('dl', { class: 'facts' }, facts.map(([name, value]) => h('div', null, h('dt', null, name), h('dd', null, value)))),
        h('div', { class: 'bar' }, this.copyButton()),
      ];
    }

    /** The best rewrite at a glance. */
    best() {
      const one = this.evidence.candidates.find((candidate) => candidate.offerable);
      if (!one) return null;
      const v = one.verdict;
      const measured = v.speedup && v.candidate_ms;
      const inputs = `the same results on ${v.trials} inputs`;
      return h('div', { class: 'best' },
        h('p', { class: 'figure' }, measured ? ratio(v.speedup) : 'Correct'),
        h('p', null, measured
          ? [h('strong', null, `${ms(v.reference_ms)} \u2192 ${ms(v.candidate_ms)}`), h('br'), `95 % interval ${v.speedup_low?.toFixed(2)} to ${v.speedup_high?.toFixed(2)}, ${inputs}`]
          : [h('strong', null, 'not timed'), h('br'), `checked on the CPU backend: ${inputs}; no speed is claimed`]));
    }

    copyButton() {
      const button = h('button', { type: 'button', id: 'dice-copy', onclick: async () => {
        const done = await copy(this.evidence.markdown, this.host.copy);
        button.textContent = done ? 'Copied' : 'Could not be copied';
        setTimeout(() => { button.textContent = 'Copy as Markdown'; }, 1500);
      } }, 'Copy as Markdown');
      return button;
    }

    table() {
      const all = this.evidence.candidates;
      if (all.length === 0) return h('p', { class: 'quiet' }, 'No candidate was decoded yet.');
      const measured = all.some((one) => one.verdict?.candidate_ms);
      const heads = [...(measured ? [['Time', 'number'], ['Speedup', 'number'], ['95 % interval', 'number']] : []), ['Relative error', 'number'], ['Why']];
      const columns = heads.length + 3;
      return [
        h('h2', { id: 'dice-candidates' }, 'Candidates'),
        h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-labelledby': 'dice-candidates' },
          h('table', null,
            h('caption', null, 'Those that are offered first; only they can be applied.'),
            h('thead', null, h('tr', null,
              h('th', { scope: 'col' }, '#'),
              h('th', { scope: 'col' }, 'Verdict'),
              h('th', { scope: 'col' }, h('span', { class: 'hidden' }, 'Actions')),
              heads.map(([name, kind]) => h('th', { scope: 'col', class: kind }, name)))),
            h('tbody', null, distinct(all).map((one) => this.rows(one, measured, columns))))),
      ];
    }

    rows(one, measured, columns) {
      const verdict = one.verdict;
      const [colour, words] = verdictWords(verdict);
      const id = `dice-detail-${one.index}`;
      const opened = this.open.has(one.index);
      const interval = verdict?.speedup_low ? `${verdict.speedup_low.toFixed(2)} to ${verdict.speedup_high.toFixed(2)}` : '';
      const toggle = h('button', {
        type: 'button', id: `dice-code-${one.index}`, 'aria-expanded': String(opened), 'aria-controls': id,
        'aria-label': `Code of candidate ${one.index}`,
        onclick: () => { if (opened) this.open.delete(one.index); else this.open.add(one.index); this.draw(); },
      }, 'Code');
      const apply = this.host.apply && one.offerable && !this.evidence.stale && h('button', {
        type: 'button', class: 'main', id: `dice-apply-${one.index}`, 'aria-label': `Apply candidate ${one.index}`,
        onclick: () => this.host.apply(one.index),
      }, 'Apply');
      const trace = (this.traces.has(one.index) || (one.has_trace && this.host.trace)) && h('button', {
        type: 'button', id: `dice-play-${one.index}`, 'aria-label': `Denoising trace of candidate ${one.index}`,
        onclick: () => this.askTrace(one.index),
      }, 'Trace');
      const number = (text) => h('td', { class: 'number' }, text);
      return [
        h('tr', null,
          h('th', { scope: 'row' }, numbers(one.same)),
          h('td', null, h('span', { class: `verdict ${colour}` }, words)),
          h('td', { class: 'actions' }, h('div', { class: 'bar' }, apply, toggle, trace)),
          measured && [number(ms(verdict?.candidate_ms)), number(ratio(verdict?.speedup)), number(interval)],
          number(digits(verdict?.max_rel_err)),
          h('td', { class: 'why' }, why(verdict))),
        h('tr', { class: 'detail', id, hidden: !opened }, h('td', { colspan: String(columns) }, opened && this.detail(one))),
      ];
    }

    detail(one) {
      const v = one.verdict ?? {};
      const facts = [
        ['Built by', v.build?.backend && `${v.build.backend} in ${digits(v.build.seconds)} s`],
        ['Judged in', v.seconds && `${digits(v.seconds)} s`],
        ['Registers a thread', v.registers],
        ['Spilled bytes', v.spills],
        ['Shared bytes a block', v.shared_bytes],
        ['Occupancy', v.occupancy && percent(v.occupancy)],
        ['Rate', v.bytes_per_second && rate(v.bytes_per_second)],
        ['Clocks', v.gpu?.sm_mhz && `${v.gpu.sm_mhz} MHz${v.gpu.throttle?.length ? `, held back by ${v.gpu.throttle.join(', ')}` : ''}`],
        ['Driver', v.gpu?.driver],
      ].filter(([, value]) => value !== null && value !== undefined && value !== '' && value !== false);
      return [
        h('dl', { class: 'facts' }, facts.map(([name, value]) => h('div', null, h('dt', null, name), h('dd', null, String(value))))),
        h('pre', { tabindex: '0', 'aria-label': `Code of candidate ${one.index}` }, one.core.replace(/^\n/, '').trimEnd()),
        v.build?.log && v.verdict === 'build_error' && h('pre', { tabindex: '0', 'aria-label': 'The compiler said' }, v.build.log.trim()),
      ];
    }

    times() {
      const chart = Dice.timesChart(this.evidence);
      return chart && [h('h2', null, 'Times'), chart];
    }

    roofline() {
      const chart = Dice.rooflineChart(this.evidence);
      return chart && [h('h2', null, 'Roofline of memory'), chart];
    }

    plan() {
      const plan = this.evidence.plan;
      if (!plan) return null;
      const rows = (plan.how ?? []).map((one) => [one.what, one.value, one.origin]);
      return [
        h('h2', { id: 'dice-plan' }, 'How this was tested'),
        plan.reason && h('p', null, plan.reason),
        rows.length > 0 && h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-labelledby': 'dice-plan' },
          h('table', null,
            h('thead', null, h('tr', null, ['What', 'Value', 'From'].map((name) => h('th', { scope: 'col' }, name)))),
            h('tbody', null, rows.map(([what, value, origin]) =>
              h('tr', null, h('th', { scope: 'row' }, what), h('td', { class: 'code' }, value), h('td', null, origin)))))),
      ];
    }

    askTrace(index) {
      if (this.traces.has(index)) this.addTrace(this.traces.get(index));
      else this.host.trace(index);
    }

    trace() {
      if (this.traces.size === 0) return null;
      const shown = this.chosen ?? [...this.traces.keys()][0];
      const select = h('select', { id: 'dice-trace-of', onchange: () => { this.chosen = Number(select.value); this.draw(); } },
        [...this.traces.keys()].map((index) => h('option', { value: String(index), selected: index === shown }, `candidate ${index}`)));
      return [
        h('h2', { id: 'dice-trace' }, 'Denoising trace'),
        h('div', { class: 'bar' }, h('label', { for: 'dice-trace-of' }, 'How this one came out of noise:'), select),
        this.player(shown),
      ];
    }

    /** Kept while the page is drawn anew: it goes on playing, and its slider stays where it is. */
    player(candidate) {
      if (!this.players.has(candidate)) this.players.set(candidate, Dice.tracePlayer(this.traces.get(candidate)));
      return this.players.get(candidate);
    }
  }

  const plain = (text) => text.replaceAll('`', '');

  async function copy(text, byHost) {
    if (byHost) {
      byHost(text);
      return true;
    }
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      return false;
    }
  }

  const root = document.getElementById('dice-evidence');
  const embedded = document.getElementById('dice-data');
  if (embedded) {
    new Page(root, {}).show(JSON.parse(embedded.textContent));
  } else if (typeof acquireVsCodeApi === 'function') {
    const editor = acquireVsCodeApi();
    const page = new Page(root, {
      copy: (text) => editor.postMessage({ type: 'copy', text }),
      apply: (candidate) => editor.postMessage({ type: 'apply', candidate }),
      trace: (candidate) => editor.postMessage({ type: 'trace', candidate }),
    });
    window.addEventListener('message', ({ data }) => {
      if (data.type === 'evidence') page.show(data.evidence);
      else if (data.type === 'trace') page.addTrace(data.trace);
    });
    editor.postMessage({ type: 'ready' });
  }
})();
