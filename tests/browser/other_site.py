"""A page of another site, that sends whatever a browser lets it send to the ports of a service."""

import json
from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.responses import HTMLResponse
from starlette.routing import Route

# Names of other sites, which the tests' browser resolves to this machine.
EVIL = "evil.example"
REBOUND = "rebind.example"

# What is sent to each address. Nobody says no to an image; a script may name any kind of body that
# needs no preflight; `application/json` does, so it must not get through.
_PAGE = """<!doctype html>
<meta charset="utf-8"><title>Win a prize</title>
<style>
  body { font: 13px system-ui; margin: 24px } td, th { text-align: left; padding: 2px 12px 2px 0 }
</style>
<h1></h1>
<table><thead><tr><th>where<th>what<th>what the browser told this page</thead><tbody></tbody>
</table>
<script type="module">
const targets = TARGETS;
document.querySelector('h1').textContent = `A page of ${location.origin}`;
const body = document.querySelector('tbody');
const late = () => new Promise(done => setTimeout(() => done('nothing within 5 s'), 5000));
const tell = answer => `answered: ${answer.type}${answer.status ? ` ${answer.status}` : ''}`;
const loads = (kind, member, address) => new Promise(done => {
  const made = document.createElement(kind);
  made.onload = () => done('loaded');
  made.onerror = () => done('no such thing');
  made[member] = address;
  document.body.append(made);
});
let frames = 0;
const form = (method, address, enctype, fields) => new Promise(done => {
  const frame = document.createElement('iframe');
  frame.name = `frame${++frames}`;
  frame.hidden = true;
  const made = document.createElement('form');
  Object.assign(made, {method, action: address, enctype, target: frame.name, hidden: true});
  for (const [name, value] of Object.entries(fields)) {
    const field = document.createElement('input');
    Object.assign(field, {name, value});
    made.append(field);
  }
  document.body.append(frame, made);
  frame.onload = () => done('the frame loaded something');
  made.submit();
});
const socket = (address, message) => new Promise(done => {
  const made = new WebSocket(address.replace('http', 'ws'), 'graphql-ws');
  made.onopen = () => {
    made.send(JSON.stringify({type: 'connection_init'}));
    made.send(JSON.stringify({type: 'start', id: '1', payload: {query: message}}));
  };
  made.onmessage = told => done(`told: ${told.data}`);
  made.onerror = () => done('no socket');
});
const means = (address, message, fields) => {
  const document = JSON.stringify({query: message});
  const asked = `${address}?query=${encodeURIComponent(message)}`;
  const send = options => fetch(address, {method: 'POST', credentials: 'include', ...options});
  return {
    'image': () => loads('img', 'src', asked),
    'script': () => loads('script', 'src', asked),
    'frame': () => loads('iframe', 'src', asked),
    'fetch, GET': () => fetch(asked, {credentials: 'include'}).then(tell),
    'fetch, GET, no-cors': () => fetch(asked, {mode: 'no-cors', credentials: 'include'}).then(tell),
    'fetch, POST, no-cors': () => send({mode: 'no-cors', body: document}).then(tell),
    'fetch, POST, fields': () =>
      send({mode: 'no-cors', body: new URLSearchParams(fields)}).then(tell),
    'fetch, POST, JSON': () =>
      send({body: document, headers: {'Content-Type': 'application/json'}}).then(tell),
    'fetch, POST, no body': () => fetch(asked, {method: 'POST', mode: 'no-cors'}).then(tell),
    'beacon': async () => navigator.sendBeacon(asked, document) ? 'taken to be sent' : 'refused',
    'form, GET': () => form('get', address, '', {query: message}),
    'form, POST': () => form('post', asked, 'application/x-www-form-urlencoded', fields),
    'form, POST, JSON as text': () =>
      form('post', address, 'text/plain', {[`${document.slice(0, -1)},"`]: '":1}'}),
    'socket': () => socket(address, message),
  };
};
for (const [address, message, fields] of targets) {
  for (const [name, send] of Object.entries(means(address, message, fields))) {
    const row = body.insertRow();
    for (const text of [address, name]) row.insertCell().textContent = text;
    const told = row.insertCell();
    try { told.textContent = await Promise.race([send(), late()]) }
    catch (error) { told.textContent = String(error) }
  }
}
document.title = 'Done';
</script>
"""


def other_site(targets: Sequence[tuple[str, str, dict[str, str]]]) -> Starlette:
    page = _PAGE.replace("TARGETS", json.dumps(targets))
    return Starlette(routes=[Route("/", lambda _: HTMLResponse(page))])
