// Building and changing the document. Names and reasons come from whoever may write to ZooKeeper: they become text and
// attributes' values here, never markup.

// el makes an element. Children are elements, text, or nothing.
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

// put sets an element's text, if it is another one: who has selected it, or has it read out, is not disturbed.
export function put(e, text) {
  if (e.textContent !== text) e.textContent = text;
}

const drawn = new WeakMap(); // what an element was made of

// draw fills an element anew if what it is made of has changed.
export function draw(parent, data, make) {
  const key = JSON.stringify(data);
  if (drawn.get(parent) === key) return;
  drawn.set(parent, key);
  withFocus(parent, () => parent.replaceChildren(...[make(data)].flat(Infinity).filter(Boolean)));
}

// list makes the children of parent out of items, in their order, and leaves alone what has not changed. Each item has a key
// of its own. An element with a refresh method changes by itself, so that what it holds keeps its place.
export function list(parent, items, keyOf, make) {
  const old = new Map([...parent.children].map((c) => [c.dataset.key, c]));
  withFocus(parent, () => {
    let at = parent.firstElementChild;
    for (const item of items) {
      const key = String(keyOf(item));
      const data = JSON.stringify(item);
      let e = old.get(key);
      old.delete(key);
      if (e && e.refresh) {
        e.refresh(item);
      } else if (!e || drawn.get(e) !== data) {
        const made = make(item);
        made.dataset.key = key;
        drawn.set(made, data);
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

// withFocus keeps the focus on the control that had it, where the change makes that anew: it is known by data-act.
function withFocus(parent, change) {
  const act = parent.contains(document.activeElement) && document.activeElement.dataset.act;
  change();
  if (!act || (document.activeElement && document.activeElement !== document.body)) return;
  const again = [...parent.querySelectorAll('[data-act]')].find((e) => e.dataset.act === act);
  if (again) again.focus();
}
