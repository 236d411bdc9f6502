'use strict';
const report = JSON.parse(document.getElementById('report').textContent);
const programs = JSON.parse(document.getElementById('programs').textContent);
const page = document.getElementById('page');

/** An element with attributes and children; texts are texts, never markup. */
function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  for (const child of children.flat(Infinity)) if (child !== null && child !== '') element.append(child);
  return element;
}

const number = value => value === null ? '∞' : String(Number(value.toPrecision(3)));
const plural = (count, word) => `${count} ${word}${count === 1 ? '' : 's'}`;
const counterexamples = property =>
  property.counterexample ? [property.counterexample, ...(property.more_counterexamples || [])] : [];
const operators = [...new Set(report.properties.map(one => one.op))];
const of = op => report.properties.filter(one => one.op === op);
const isImplemented = op => of(op).some(one => one.status !== 'not_implemented');

function section(title, ...children) {
  page.append(make('section', {}, make('h2', {}, title), ...children));
}

function copied(text) {
  const button = make('button', {type: 'button'}, 'copy');
  button.addEventListener('click', async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = 'copied';
    } catch {
      getSelection().selectAllChildren(button.previousSibling);  // a page of a file may not write it
      button.textContent = 'selected';
    }
    setTimeout(() => { button.textContent = 'copy'; }, 1500);
  });
  return make('div', {class: 'copy'}, make('pre', {}, text), button);
}

function definitions(pairs) {
  return make('dl', {}, pairs.filter(([, value]) => value !== undefined && value !== '')
    .map(([name, value]) => [make('dt', {}, name), make('dd', {}, value)]));
}

/** As the terminal counts them: a law that the candidate declined has not held. */
const applies = one => !['not_applicable', 'not_implemented'].includes(one.status) &&
  !(one.status === 'declined' && one.property.startsWith('required_'));

// ---- head ----

function head() {
  const cases = report.properties.reduce((sum, one) => sum + one.cases, 0);
  const laws = report.properties.filter(applies);
  const held = laws.filter(one => one.status === 'held').length;
  const waived = report.properties.reduce((sum, one) => sum + one.waived, 0);
  const shown = ['held', 'falsified'].includes(report.verdict) ? report.verdict : 'open';
  const known = report.verdict !== 'falsified' ? 'known ' : '';  // to a baseline
  const causes = report.causes.length ? `, ${plural(report.causes.length, known + 'cause')}` : '';
  page.append(make('h1', {}, report.candidate), make('div', {class: `banner ${shown}`},
    make('div', {class: 'verdict', id: 'verdict'}, report.verdict.replace('_', ' ') + causes),
    make('p', {id: 'totals'}, `${held} of ${laws.length} laws held, ${plural(cases, 'case')}` +
      `${waived ? `, ${waived} waived` : ''}, ${number(report.duration_s)} s, seed ${report.seed}`)));
  const shard = report.shard.of > 1 ? `${report.shard.parts.join(', ')} of ${report.shard.of}` : '';
  page.append(definitions([['date', report.date], ['version', report.version], ['library', report.library],
    ['SHA-256', report.library_sha256], ['host', (report.hosts || []).join(', ')], ['sandbox', report.sandbox], ['shards', shard],
    ['declared', report.precision.declared], ['errors look like', report.precision.looks_like],
    ['', report.precision.wider_than_seen]]));
  for (const note of report.notes || []) page.append(make('p', {class: 'odd'}, 'note: ' + note));
}

// ---- failures ----

/** The picture in a message: lines "sequence 0   head 1   0.5 16.2" below "where: ...". */
function picture(message) {
  const lines = message.split('\n');
  const start = lines.findIndex(line => line.startsWith('  where: '));
  if (start < 0) return null;
  const rows = [];
  for (let k = start + 1; k < lines.length; ++k) {
    const found = /^    sequence (\d+)\s+head (\d+)\s+(.*)$/.exec(lines[k]);
    if (!found) break;
    rows.push({sequence: found[1], head: found[2], tiles: found[3].trim().split(/\s+/)});
  }
  if (rows.length === 0) return null;
  const widest = Math.max(...rows.map(row => row.tiles.length));
  const cell = text => {
    const size = text === 'inf' ? 1e9 : Math.abs(Number(text));
    const shade = Number.isFinite(size) ? Math.min(0.75, Math.max(0, Math.log10(size)) / 3 + (size > 1 ? 0.15 : 0)) : 0;
    return make('td', {style: `background: rgba(var(--mark), ${shade.toFixed(2)})`}, text);
  };
  return make('div', {class: 'scroll'}, make('p', {class: 'faint'}, lines[start].trim()), make('table', {class: 'map'},
    make('tr', {}, make('th', {}, 'sequence'), make('th', {}, 'head'),
      Array.from({length: widest}, (_, tile) => make('th', {}, `tile ${tile}`))),
    rows.map(row => make('tr', {}, make('td', {}, row.sequence), make('td', {}, row.head), row.tiles.map(cell)))));
}

function withoutPicture(message) {
  return message.split('\n').filter(line => !line.startsWith('  where: ') && !/^    (sequence|\.\.\.) /.test(line)).join('\n');
}

function byNumber() {
  const all = new Map();
  for (const property of report.properties)
    for (const found of counterexamples(property)) all.set(found.number, {...found, op: property.op, property: property.property});
  return all;
}

/** What a message says the defect is, without the class before it and the statistics behind it. */
const diagnosis = one => one.message.split('\n')[0].replace(`${one.failure}: `, '').replace(/; rms error.*| \(t = .*/, '');

/// Laws with the failure of the first one by name alone; others behind what they say.
function laws_by_failure(others, first) {
  const groups = new Map();
  for (const one of others) groups.set(one.failure, [...(groups.get(one.failure) || []), one.property]);
  return [...groups].map(([failure, laws]) => (failure === first.failure ? '' : `${failure}: `) + laws.join(', ')).join('; ');
}

function details(one) {
  return [make('pre', {}, withoutPicture(one.message)), picture(one.message) || picture(one.message_as_found || ''),
    definitions([['matters', one.matters], ['certificate', one.certificate]]),
    make('p', {class: 'faint'}, /not shrunk|shown as found$/.test(one.certificate) ? 'case' : 'smallest case'), copied(one.case),
    make('p', {class: 'faint'}, 'replay'), copied(one.reproduce),
    make('details', {}, make('summary', {}, 'as found'), make('pre', {}, one.original_case), make('pre', {}, one.message_as_found || ''))];
}

function failures() {
  if (report.causes.length === 0) return;
  const all = byNumber();
  const cards = report.causes.map(cause => {
    const [first, ...others] = cause.counterexamples.map(k => all.get(k)).filter(Boolean);
    first.matters ||= (others.find(one => one.case === first.case && one.matters) || {}).matters;
    const named = all.get(cause.named);
    const title = cause.checks_no_arguments ? 'the library checks no arguments' : `${first.op}.${first.property}: ${first.failure}`;
    const program = programs[first.number];
    return make('article', {class: 'card cause'}, make('h3', {class: 'bad'}, `@${first.number} ${title}`),
      named ? make('p', {}, make('strong', {}, 'looks like '), diagnosis(named)) : '',
      details(first),
      program ? make('details', {class: 'program'}, make('summary', {}, 'as a program of its own (NumPy)'), copied(program)) : '',
      others.length ? make('details', {class: 'others'}, make('summary', {}, `also fails: ${laws_by_failure(others, first)}`),
        others.map(one => make('div', {}, make('h3', {}, `@${one.number} ${one.op}.${one.property}: ${one.failure}`), details(one)))) : '');
  });
  section(plural(report.causes.length, 'cause') + ' of failures', cards);
}

function baseline() {
  const before = report.baseline;
  if (!before) return;
  const list = (title, shade, all) => all.length === 0 ? '' : make('div', {}, make('h3', {class: shade}, `${all.length} ${title}`),
    make('ul', {}, all.map(one => make('li', {}, `${one.op}.${one.property}: ${one.failure}`))));
  const isEmpty = Object.values(before).every(all => all.length === 0);
  section('against the baseline', isEmpty ? make('p', {}, 'no failure then, none now') : '', list('new', 'bad', before.new),
    list('fixed', 'good', before.fixed), list('the same', 'odd', before.same), list('not judged by this run, or waived', 'faint', before.not_judged));
}

// ---- tables ----

function laws() {
  const rows = [];
  for (const op of operators.filter(isImplemented)) {
    const own = of(op), judged = own.filter(applies);
    const held = judged.filter(one => one.status === 'held').length;
    rows.push(make('tr', {class: 'operator'}, make('td', {}, op), make('td', {}, `${held} of ${judged.length} held`),
      make('td', {class: 'number'}, String(own.reduce((sum, one) => sum + one.cases, 0))), make('td'), make('td'), make('td')));
    for (const one of own) {
      const shade = {held: 'good', falsified: 'bad', error: 'bad', inconclusive: 'odd'}[one.status] || 'faint';
      rows.push(make('tr', {class: 'law'}, make('td', {}, one.property), make('td', {class: shade}, one.status.replace('_', ' ')),
        make('td', {class: 'number'}, String(one.cases)), make('td', {class: 'number'}, String(one.declined)),
        make('td', {class: 'number'}, one.cases ? number(one.worst_error_ratio) : ''), make('td', {class: 'note'}, [one.note || '',
          one.waived ? ` ${one.waived} waived: ${(one.waivers || []).join('; ')}` : ''].join(''))));
    }
  }
  const missing = operators.filter(op => !isImplemented(op));
  section('laws', make('div', {class: 'scroll'}, make('table', {id: 'laws'}, make('tr', {}, make('th', {}, 'law'), make('th', {}, 'status'),
    make('th', {class: 'number'}, 'cases'), make('th', {class: 'number'}, 'declined'),
    make('th', {class: 'number'}, 'worst error / bound'), make('th', {}, 'note')), rows)),
    missing.length ? make('p', {class: 'faint'}, 'not implemented: ' + missing.join(', ')) : '');
}

function coverage() {
  const parts = [];
  for (const [op, pairs] of Object.entries(report.pairs || {}))
    parts.push(make('tr', {}, make('td', {}, op), make('td', {class: 'number'}, `${pairs.reached} of ${pairs.possible}`),
      make('td', {}, make('div', {class: 'gauge'}, make('span', {style: `width: ${pairs.possible ? 100 * pairs.reached / pairs.possible : 100}%`}))),
      make('td', {}, pairs.missing.length ? make('details', {}, make('summary', {}, `${pairs.missing.length} missing`),
        make('pre', {}, pairs.missing.join('\n'))) : '')));
  if (parts.length) section('pairs of classes in one case', make('div', {class: 'scroll'}, make('table', {id: 'pairs'}, parts)));
  const classes = operators.filter(isImplemented).map(op => {
    const counts = new Map();
    for (const one of of(op)) for (const [label, count] of Object.entries(one.labels)) counts.set(label, (counts.get(label) || 0) + count);
    const sorted = [...counts].sort((a, b) => b[1] - a[1]);
    return sorted.length === 0 ? '' : make('details', {}, make('summary', {}, `${op}: ${sorted.length} classes`),
      make('div', {class: 'scroll'}, make('table', {}, sorted.map(([label, count]) => make('tr', {}, make('td', {}, label),
        make('td', {class: 'number'}, String(count)),
        make('td', {}, make('div', {class: 'gauge'}, make('span', {style: `width: ${100 * count / sorted[0][1]}%`}))))))));
  });
  if (classes.some(Boolean)) section('classes of cases', classes);
  const takes = Object.entries(report.takes || {});
  if (takes.length) section('what the candidate takes', takes.map(([op, one]) => definitions([[op, one.cases], ['outside', one.outside]])));
  const options = Object.entries(report.options || {}).filter(([, value]) => value !== '' && value !== null);
  if (options.length) section('options', definitions(options.map(([name, value]) => [name, String(value)])));
}

// ---- plots ----

/** Cases by bin over laws, from the lowest to the highest bin that has any. */
function histogram(properties) {
  const cases = new Map();
  // A law whose errors are all 0 compares bits, or nothing that has an error.
  for (const one of properties.filter(law => law.worst_error_ratio !== 0)) for (const bin of one.worst_errors) cases.set(bin.from, (cases.get(bin.from) || 0) + bin.cases);
  const edges = [...cases.keys()].filter(from => from > 0).map(from => Math.round(4 * Math.log2(from)));
  for (let k = Math.min(...edges); k < Math.max(...edges); ++k) {  // those without a case are part of the shape
    const near = [...cases.keys()].some(from => from > 0 && Math.round(4 * Math.log2(from)) === k);
    if (!near && Math.abs(k) < 100) cases.set(2 ** (k / 4), 0);
  }
  return [...cases].sort((a, b) => a[0] - b[0]);
}

const plots = [];

function plotOf(title, bins) {
  const total = bins.reduce((sum, [, count]) => sum + count, 0);
  const label = from => from === 0 ? 'exact' : number(from);
  const table = make('details', {}, make('summary', {}, `${title}: ${plural(total, 'case')}`),
    make('table', {class: 'bins'}, make('tr', {}, make('th', {class: 'number'}, 'from'), make('th', {class: 'number'}, 'cases')),
      bins.map(([from, count]) => make('tr', {}, make('td', {class: 'number'}, label(from)), make('td', {class: 'number'}, String(count))))));
  if (typeof Chart === 'undefined') {
    table.open = true;
    return make('div', {}, table);
  }
  const canvas = make('canvas', {role: 'img', 'aria-label': title});
  plots.push({canvas, title, bins, label});
  return make('div', {}, make('div', {class: 'plot'}, canvas), table);
}

function drawPlots() {
  const style = getComputedStyle(document.documentElement);
  const colour = name => style.getPropertyValue(name).trim();
  for (const plot of plots) {
    if (plot.chart) plot.chart.destroy();
    const grid = {color: colour('--line')}, ticks = {color: colour('--faint')};
    plot.chart = new Chart(plot.canvas, {type: 'bar',
      data: {labels: plot.bins.map(([from]) => plot.label(from)), datasets: [{data: plot.bins.map(([, count]) => count),
        backgroundColor: plot.bins.map(([from]) => colour(from >= 1 ? '--bad' : '--bar')), categoryPercentage: 1, barPercentage: 0.95}]},
      options: {animation: false, maintainAspectRatio: false, plugins: {legend: {display: false},
        title: {display: true, text: plot.title, color: colour('--text')}},
      scales: {x: {grid: {display: false}, ticks: {...ticks, maxRotation: 60}}, y: {grid, ticks: {...ticks, precision: 0}, beginAtZero: true}}}});
  }
}

function errors() {
  const bounds = [], deviations = [];
  for (const op of operators.filter(isImplemented)) {
    const bound = histogram(of(op).filter(one => one.property !== 'deviation'));
    const z = histogram(of(op).filter(one => one.property === 'deviation'));
    if (bound.length) bounds.push(plotOf(op, bound));
    if (z.length) deviations.push(plotOf(op, z));
  }
  if (bounds.length) section('worst error of a case, in units of its bound', make('div', {class: 'plots'}, bounds));
  if (deviations.length) section('worst deviation of a case (z), in units of its limit', make('div', {class: 'plots'}, deviations));
}

head();
failures();
baseline();
laws();
errors();
coverage();
drawPlots();
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', drawPlots);
addEventListener('beforeprint', () => { for (const one of document.querySelectorAll('.cause > details:not(.program, .others)')) one.open = true; });
