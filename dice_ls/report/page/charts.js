// Two charts as inline SVG: times with intervals, and rates under the roof that memory sets.
'use strict';
(() => {
  const { s, digits, ms, ratio, percent, rate, verdictWords, distinct } = Dice;
  const WIDTH = 720, LEFT = 130, RIGHT = 190, ROW = 30, TOP = 8;

  /** Round numbers from 0 to at least `most`, at most six. */
  function ticks(most) {
    const step = [1, 2, 2.5, 5, 10].map((one) => one * 10 ** Math.floor(Math.log10(most / 5))).find((one) => most / one <= 5) ?? most;
    return Array.from({ length: Math.ceil(most / step - 1e-9) + 1 }, (_, index) => index * step);
  }

  function frame(rows, label, most, axis, parts) {
    const height = TOP + rows * ROW + 44;
    const at = (value) => LEFT + (value / most) * (WIDTH - LEFT - RIGHT);
    const bottom = TOP + rows * ROW + 6;
    return s('svg', { viewBox: `0 0 ${WIDTH} ${height}`, role: 'img', 'aria-label': label },
      ticks(most).filter((value) => value <= most * 1.001).map((value) => [
        s('line', { class: 'grid', x1: at(value), x2: at(value), y1: TOP, y2: bottom }),
        s('text', { class: 'quiet', x: at(value), y: bottom + 16, 'text-anchor': 'middle' }, digits(value)),
      ]),
      s('text', { class: 'quiet', x: LEFT, y: bottom + 34 }, axis),
      parts(at));
  }

  function bar(index, name, length, fill, note) {
    const y = TOP + index * ROW;
    return [
      s('text', { x: LEFT - 10, y: y + 20, 'text-anchor': 'end' }, name),
      s('rect', { class: `bar-${fill}`, x: LEFT, y: y + 6, width: Math.max(1, length - LEFT), height: ROW - 12, rx: 2 }),
      note,
    ];
  }

  function whisker(index, low, high) {
    const y = TOP + index * ROW + ROW / 2;
    return s('path', { class: 'whisker', d: `M${low} ${y - 6}V${y + 6}M${low} ${y}H${high}M${high} ${y - 6}V${y + 6}` });
  }

  /** Candidates that were timed, or none. */
  function timed(evidence) {
    return distinct(evidence.candidates).filter((one) => one.verdict?.candidate_ms && one.verdict?.reference_ms);
  }

  /** Times of the original and of each candidate; the whisker is the 95 % interval of the ratio, as a time. */
  Dice.timesChart = (evidence) => {
    const found = timed(evidence);
    if (found.length === 0) return null;
    const original = found[0].verdict.reference_ms;
    const rows = found.map(({ index, verdict }) => ({
      name: `candidate ${index}`,
      ms: verdict.candidate_ms,
      low: verdict.speedup_high ? verdict.reference_ms / verdict.speedup_high : verdict.candidate_ms,
      high: verdict.speedup_low ? verdict.reference_ms / verdict.speedup_low : verdict.candidate_ms,
      note: `${ms(verdict.candidate_ms)}, ${ratio(verdict.speedup)}`,
      fill: verdictWords(verdict)[0] === 'good' ? 'good' : 'fair',
    }));
    const most = Math.max(original, ...rows.map((row) => row.high)) * 1.02;
    const label = `Times. Original ${ms(original)}. ` + rows.map((row) => `${row.name}: ${row.note}`).join('. ');
    return frame(rows.length + 1, label, most, 'milliseconds, less is better; whiskers: 95 % interval', (at) => [
      bar(0, 'original', at(original), 'original', s('text', { x: at(original) + 10, y: TOP + 20 }, ms(original))),
      rows.map((row, place) => [
        bar(place + 1, row.name, at(row.ms), row.fill,
          s('text', { x: at(Math.max(row.ms, row.high)) + 10, y: TOP + (place + 1) * ROW + 20 }, row.note)),
        whisker(place + 1, at(row.low), at(row.high)),
      ]),
    ]);
  };

  /** Bytes a second of the original and each candidate, under what a copy reaches on the same GPU. */
  Dice.rooflineChart = (evidence) => {
    const found = timed(evidence).filter((one) => one.verdict.bytes_per_second && one.verdict.roofline);
    if (found.length === 0) return null;
    const first = found[0].verdict;
    const roof = first.bytes_per_second / first.roofline;
    const row = (name, value, fill) => ({ name, value, fill, note: `${rate(value)}, ${percent(value / roof)} of the roof` });
    const rows = [
      row('original', first.bytes / (first.reference_ms / 1000), 'original'),
      ...found.map(({ index, verdict }) =>
        row(`candidate ${index}`, verdict.bytes_per_second, verdictWords(verdict)[0] === 'good' ? 'good' : 'fair')),
    ];
    const most = (Math.max(roof, ...rows.map((one) => one.value)) / 1e9) * 1.02;
    const label = `Memory roofline. A copy reaches ${rate(roof)}. ` + rows.map((one) => `${one.name}: ${one.note}`).join('. ');
    return frame(rows.length, label, most, `GB/s of the ${digits(first.bytes / 1e6)} MB that must move; line: a copy on this GPU`, (at) => [
      rows.map((one, place) => bar(place, one.name, at(one.value / 1e9), one.fill,
        s('text', { x: WIDTH - RIGHT + 10, y: TOP + place * ROW + 20 }, one.note))),
      s('line', { class: 'roof', x1: at(roof / 1e9), x2: at(roof / 1e9), y1: TOP, y2: TOP + rows.length * ROW + 6 }),
    ]);
  };
})();
