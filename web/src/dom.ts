/** Builds elements from names, attributes and text: nothing from the broker is ever parsed as HTML. */

type Attribute = string | number | boolean | undefined | ((event: never) => void);
type Attributes = Readonly<Record<string, Attribute>>;
export type Child = Node | string | number | undefined | false;

const SVG = "http://www.w3.org/2000/svg";

/** `on…` attributes are listeners, false and undefined are left out, true is an attribute without a value. */
export function h<Name extends keyof HTMLElementTagNameMap>(
  name: Name,
  attributes: Attributes = {},
  ...children: readonly Child[]
): HTMLElementTagNameMap[Name] {
  const element = document.createElement(name);
  setAll(element, attributes);
  appendAll(element, ...children);
  return element;
}

export function svg(name: string, attributes: Attributes = {}, ...children: readonly Node[]): SVGElement {
  const element = document.createElementNS(SVG, name);
  setAll(element, attributes);
  element.append(...children);
  return element;
}

function setAll(element: Element, attributes: Attributes): void {
  for (const [name, value] of Object.entries(attributes)) set(element, name, value);
}

export function set(element: Element, name: string, value: Attribute): void {
  if (typeof value === "function") element.addEventListener(name.slice(2), value as unknown as EventListener);
  else if (value === undefined || value === false) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value))
    element.setAttribute(name, value === true ? "" : String(value));
}

function appendAll(element: Element, ...children: readonly Child[]): void {
  for (const child of children) {
    if (child !== undefined && child !== false) element.append(child instanceof Node ? child : String(child));
  }
}

/** Replaces all children. */
export function setChildren(element: Element, ...children: readonly Child[]): void {
  element.replaceChildren();
  appendAll(element, ...children);
}

/** Writes only if the text differs, so that a selection in it is not lost. */
export function setText(element: Element, text: string | number): void {
  const wanted = String(text);
  if (element.textContent !== wanted) element.textContent = wanted;
}

/** One child per item, in their order. Each is made once and then updated: focus and selection are kept. */
export function updateRows<Item, Row extends Element>(
  parent: Element,
  items: readonly Item[],
  keyOf: (item: Item) => string | number,
  make: (item: Item) => Row,
  update: (row: Row, item: Item) => void,
): void {
  const before = (rowsByParent.get(parent) as Map<string | number, Row> | undefined) ?? new Map<string | number, Row>();
  const after = new Map<string | number, Row>();
  let place: Element | null = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    const row = before.get(key) ?? make(item);
    after.set(key, row);
    update(row, item);
    if (place === row) place = row.nextElementSibling;
    else parent.insertBefore(row, place);
  }
  for (const [key, row] of before) if (after.get(key) !== row) row.remove();
  rowsByParent.set(parent, after);
}

const rowsByParent = new WeakMap<Element, Map<string | number, Element>>();
