// Building and changing the document. Names and reasons come from anyone who may write to ZooKeeper. They become text and
// attribute values here, never markup.

// el creates an element. Children are elements, text, or nothing.
export function el(tag, attributes, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === 'onclick') e.addEventListener('click', value);
    else if (value === true) e.setAttribute(name, '');
    else if (value !== false && value != null) e.setAttribute(name, value);
  }
  e.append(...children.flat(Infinity).filter((c) => c != null && c !== '' && c !== false));
  return e;
}

export const byID = (id) => document.getElementById(id);

// setText sets an element's text if it differs, so that a selection or a screen reader is not disturbed.
export function setText(e, text) {
  if (e.textContent !== text) e.textContent = text;
}

const renderedData = new WeakMap(); // the data that an element was made from

// render replaces the children of an element if the data that they are made from has changed.
export function render(parent, data, make) {
  const key = JSON.stringify(data);
  if (renderedData.get(parent) === key) return;
  renderedData.set(parent, key);
  keepFocus(parent, () => parent.replaceChildren(...[make(data)].flat(Infinity).filter(Boolean)));
}

// renderList makes the children of parent from items, in their order, and keeps elements whose item has not changed. Each item
// has a unique key. An element with a refresh method updates itself, so that its content keeps its scroll position.
export function renderList(parent, items, keyOf, make) {
  const old = new Map([...parent.children].map((c) => [c.dataset.key, c]));
  keepFocus(parent, () => {
    let at = parent.firstElementChild;
    for (const item of items) {
      const key = String(keyOf(item));
      const data = JSON.stringify(item);
      let e = old.get(key);
      old.delete(key);
      if (e && e.refresh) {
        e.refresh(item);
      } else if (!e || renderedData.get(e) !== data) {
        const made = make(item);
        made.dataset.key = key;
        renderedData.set(made, data);
        if (made.refresh) made.refresh(item);
        if (e) {
          if (e === at) at = made;
          e.replaceWith(made);
        }
        e = made;
      }
      if (e === at) at = at.nextElementSibling;
      else parent.insertBefore(e, at);
    }
    for (const e of old.values()) e.remove();
  });
}

// keepFocus keeps the focus on a control that change replaces. Controls are identified by data-act.
function keepFocus(parent, change) {
  const act = parent.contains(document.activeElement) && document.activeElement.dataset.act;
  change();
  if (!act || (document.activeElement && document.activeElement !== document.body)) return;
  const replacement = [...parent.querySelectorAll('[data-act]')].find((e) => e.dataset.act === act);
  if (replacement) replacement.focus();
}
