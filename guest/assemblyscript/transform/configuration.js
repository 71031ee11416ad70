// The code that fills the fields with the decorator @config from the plugin's configuration.

import { mistake } from "./mistake.js";

const classDeclaration = 52, fieldDeclaration = 55;
const numbers = ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "isize", "usize", "f32", "f64", "number"];

export class Configuration {
  constructor(classes, file, imported) {
    this.classes = classes;
    this.file = file;
    this.imported = imported;
    this.written = new Map();
    this.imports = "";
  }

  /** of returns the functions that fill a plugin's class, the imports that they need, and what calls them. */
  of(declaration) {
    const fields = this.fields(declaration);
    if (fields.length === 0) {
      return {
        imports: `import * as config from "kubewasm/config";\n`, functions: "",
        call: `  if (!config.none()) { host.reason("the plugin takes no configuration, but has been given some"); return 1; }\n`,
      };
    }
    this.fill(declaration);
    return {
      imports: `import * as config from "kubewasm/config";\n` + this.imports,
      functions: [...this.written.values()].join(""),
      call: `  const value = config.parse();\n  if (value !== null) fill_${declaration.name.text}(plugin, value);\n  const wrong = config.mistakes();\n  if (wrong.length != 0) { host.reason(wrong); return 1; }\n`,
    };
  }

  fields(declaration) {
    return declaration.members.filter(m => m.kind === fieldDeclaration && (m.decorators ?? []).some(d => d.name.text === "config"));
  }

  fill(declaration) {
    const name = declaration.name.text;
    if (this.written.has(name)) return;
    this.written.set(name, "");
    const fields = this.fields(declaration);
    const names = [];
    let cases = "";
    for (const f of fields) {
      const decorator = f.decorators.find(d => d.name.text === "config");
      const key = decorator.args?.[0]?.value ?? f.name.text;
      names.push(key);
      this.field = f;
      cases += `    if (m.key == ${JSON.stringify(key)}) { ${this.assign(`to.${f.name.text}`, f.type, `${name}.${f.name.text}`)} continue; }\n`;
    }
    this.written.set(name, `
function fill_${name}(to: ${name}, v: config.Value): void {
  const members = v.members();
  for (let i = 0; i < members.length; i++) {
    const m = members[i];
    if (m.isNull) continue;
${cases}    m.unknown(${JSON.stringify(names.join(" "))});
  }
}
`);
  }

  /** assign returns the statement that fills a field from the value m. */
  assign(to, type, where) {
    if (!type?.name) throw mistake(`${where} has the decorator @config and no type`, this.field);
    return `${to} = ${this.read(type, "m", to, where)};`;
  }

  read(type, m, old, where) {
    const name = type.name.identifier.text;
    const args = type.typeArguments ?? [];
    if (name === "string") return `${m}.string(${old ?? `""`})`;
    if (name === "bool" || name === "boolean") return `${m}.bool(${old ?? "false"})`;
    if (numbers.includes(name)) return `${m}.${name.startsWith("f") || name === "number" ? "float" : "int"}<${name}>(${old ?? "0"})`;
    if (name === "Array") {
      const element = this.read(args[0], "v", null, where);
      const t = this.text(args[0]);
      return `${this.helper(`list_${this.mangled(args[0])}`, `(m: config.Value): ${t}[] {\n  const list: ${t}[] = [];\n  const elements = m.elements();\n  for (let i = 0; i < elements.length; i++) { const v = elements[i]; list.push(${element}); }\n  return list;\n}\n`)}(${m})`;
    }
    if (name === "Map" && args[0]?.name?.identifier.text === "string") {
      const element = this.read(args[1], "v", null, where);
      const t = this.text(args[1]);
      return `${this.helper(`map_${this.mangled(args[1])}`, `(m: config.Value): Map<string, ${t}> {\n  const map = new Map<string, ${t}>();\n  const members = m.members();\n  for (let i = 0; i < members.length; i++) { const v = members[i]; map.set(v.key, ${element}); }\n  return map;\n}\n`)}(${m})`;
    }
    const c = this.classes.get(name);
    if (!c || this.fields(c.declaration).length === 0) {
      throw mistake(`${where} has the type ${this.text(type)}, which cannot be configured: want a string, a bool, a number, a class whose fields have @config, or an array or a Map<string, …> of these`, this.field);
    }
    if (!this.written.has(name)) {
      c.declaration.flags |= 2; // It is imported.
      this.imports += `import { ${name} } from "${this.imported(this.file, c.source.internalPath)}";\n`;
      this.fill(c.declaration);
    }
    return `${this.helper(`make_${name}`, `(m: config.Value): ${name} {\n  const to = new ${name}();\n  fill_${name}(to, m);\n  return to;\n}\n`)}(${m})`;
  }

  helper(name, text) {
    this.written.set(name, `\nfunction ${name}${text}`);
    return name;
  }

  mangled(type) {
    return this.text(type).replace(/\W+/g, "_");
  }

  text(type) {
    const args = type.typeArguments ?? [];
    return type.name.identifier.text + (args.length > 0 ? `<${args.map(a => this.text(a)).join(", ")}>` : "");
  }
}
