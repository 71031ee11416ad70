// The transform of the compiler that makes a module for kubewasm of a class with a decorator:
// it exports the functions that the class has methods for, fills the fields with the decorator
// @config, and adds the schema of a service. kubewasm build gives it to the compiler.

import { readFileSync } from "node:fs";
import { posix as path } from "node:path";
import { functions } from "./functions.js";
import { Configuration } from "./configuration.js";
import { mistake } from "./mistake.js";

// What the compiler calls these in its syntax tree.
const classDeclaration = 52, methodDeclaration = 59, namespaceDeclaration = 60, variable = 48, literal = 17;
const exported = 2, stringLiteral = 2;
const kinds = ["scheduler", "admission", "hook", "service"];

/** signatureOf returns the signature of a method, as the comment of the module of its kind has it; null if it has none. */
function signatureOf(kind, method) {
  const text = readFileSync(new URL(`../${kind === "hook" ? "hooks" : kind}.ts`, import.meta.url), "utf8");
  const found = new RegExp(`^//     (${method}\\(([^)]*)\\): .*)$`, "m").exec(text);
  return found && { text: found[1], parameters: found[2] === "" ? [] : found[2].split(", ") };
}

const basic = ["bool", "boolean", "string", "void", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "isize", "usize", "f32", "f64", "number"];

/** textOf returns a type as the source has it, without the names of modules and spaces. */
function textOf(type) {
  return type?.range.source.text.substring(type.range.start, type.range.end).replace(/\b\w+\./g, "").replace(/\s/g, "") ?? "";
}

/** disagreement names the first thing in which a method differs from its signature; "" if that cannot be told. */
function disagreement(method, want) {
  const { parameters, returnType } = method.signature;
  if (parameters.length !== want.parameters.length) return `has ${parameters.length} parameters`;
  const types = want.parameters.map(p => p.replace(/^.*: /, "").replace(/\s/g, "")); // An alias may stand for another type.
  const swapped = parameters.find((p, i) => textOf(p.type) !== types[i] && types.includes(textOf(p.type)));
  if (swapped) return `has the parameter ${swapped.name.text} of type ${textOf(swapped.type)}`;
  const result = want.text.replace(/^.*\): /, ""), given = textOf(returnType);
  if (basic.includes(given) && !basic.includes(result) || given.endsWith("|null") && basic.includes(result)) return `returns ${given.replace("|", " | ")}`;
  return "";
}

/** similar returns the one of the names that differs from another by a letter, or by two that are swapped; undefined without one. */
function similar(name, names) {
  const sorted = s => [...s.toLowerCase()].sort().join("");
  return names.find(n => n.length > 3 && (sorted(n) === sorted(name) || without(n).some(w => w === name || without(name).includes(w)) || without(name).includes(n)));
}

/** without returns the texts that lack one letter of a name. */
function without(name) {
  return [...name].map((_, i) => name.slice(0, i) + name.slice(i + 1));
}

/** decoratorOf returns the decorator of a declaration with one of the names. */
function decoratorOf(declaration, ...names) {
  return (declaration.decorators ?? []).find(d => names.includes(d.name.text));
}

/** imported returns the path by which the file at from imports the one at to, both as the compiler names them. */
function imported(from, to) {
  if (to.startsWith("~lib/")) return to.substring("~lib/".length);
  const relative = path.relative(path.dirname(from), to);
  return relative.startsWith(".") ? relative : "./" + relative;
}

export default class KubewasmTransform {
  afterParse(parser) {
    const options = this.program.options;
    if (options.runtime !== 1) throw new Error("kubewasm: the runtime has to be minimal, whose collector runs between calls");
    options.exportStart = "_initialize";
    options.globalAliases ??= new Map();
    options.globalAliases.set("abort", "~lib/kubewasm/internal/host/aborted");

    const plugins = [], points = new Map(), classes = new Map(), constants = new Map();
    for (const source of parser.sources) {
      const user = source.sourceKind <= 1;
      if (user) source.sourceKind = 0; // It exports nothing by itself.
      for (const statement of source.statements) {
        if (statement.kind === variable && source.internalPath === "~lib/rt/tcms") {
          for (const d of statement.declarations) if (d.name.text === "total") d.flags |= exported, this.total = d;
        }
        if (statement.kind === variable && source.internalPath === "~lib/rt/common") {
          // The allocator does not check itself. What a plugin asserts is checked.
          for (const d of statement.declarations) constants.set(d.name.text, d);
        }
        if (statement.kind !== classDeclaration) continue;
        const point = decoratorOf(statement, "extensionPoint");
        if (point) points.set(statement.name.text, { declaration: statement, source, args: point.args.map(a => a.value) });
        if (!user) continue;
        classes.set(statement.name.text, { declaration: statement, source });
        const kind = decoratorOf(statement, ...kinds);
        if (kind) plugins.push({ declaration: statement, source, kind: kind.name.text });
      }
    }
    if (!this.total) throw new Error("kubewasm: this version of assemblyscript has another collector than 0.28");
    for (const source of parser.sources) this.lazy(source.statements);
    constants.get("DEBUG").initializer = constants.get("TRACE").initializer; // false
    this.files = parser.sources.filter(s => s.sourceKind === 0);
    if (plugins.length === 0) {
      const first = [...classes.values()][0]?.declaration;
      throw mistake(`no class has one of the decorators ${kinds.map(k => "@" + k).join(", ")}`, first);
    }
    if (plugins.length > 1) throw mistake(`${plugins.map(p => p.declaration.name.text).join(" and ")} are plugins: a module has one`, plugins[1].declaration);
    this.plugin = plugins[0];
    this.exports = [];
    const file = this.plugin.source.internalPath + ".kubewasm";
    const text = this.source(file, points, new Configuration(classes, file, imported));
    if (process.env.KUBEWASM_SHOW) console.error(text);
    parser.parseFile(text, file + ".ts", true);
  }

  /** lazy leaves constant strings that are not used out of the module, where the collector would look at each. */
  lazy(statements) {
    for (const statement of statements) {
      if (statement.kind === namespaceDeclaration) this.lazy(statement.members);
      if (statement.kind !== variable) continue;
      for (const d of statement.declarations) {
        if (d.initializer?.kind === literal && d.initializer.literalKind === stringLiteral) d.decorators ??= this.total.decorators;
      }
    }
  }

  /** source returns the file that exports the functions of the plugin. */
  source(file, points, configuration) {
    const { declaration, source, kind } = this.plugin;
    const name = declaration.name.text;
    declaration.flags |= exported;
    const methods = new Map();
    for (const m of declaration.members) if (m.kind === methodDeclaration) methods.set(m.name.text, m);
    let mask = 1n << 56n;
    let imports = `import { ${name} } from "${imported(file, source.internalPath)}";\n`;
    let body = "";
    if (kind === "service") {
      const point = points.get(declaration.extendsType?.name.identifier.text);
      if (!point) throw mistake(`${name} extends none of the extension points that kubewasm gen has written`, declaration);
      const service = point.declaration.name.text;
      // The full name, the schema, and the name of each method in the class and in the schema.
      const [fullName, schema, ...names] = point.args;
      const wires = new Map();
      for (let i = 0; i < names.length; i += 2) wires.set(names[i], names[i + 1]);
      this.schema = Buffer.from(schema, "base64");
      mask |= 1n << 60n;
      imports += `import * as sdk from "kubewasm/service";\n`;
      imports += `import * as generated from "${imported(file, point.source.internalPath)}";\n`;
      body += `export function services(): void { sdk.implement("${fullName}"); }\n`;
      for (const m of point.declaration.members) {
        if (m.kind !== methodDeclaration || !methods.has(m.name.text)) continue;
        const method = m.name.text;
        body += `export function ${service}_${method}(): i32 { return generated.serve_${service}_${method}(plugin); }\n`;
        this.exports.push([`${service}_${method}`, `${file}/${service}_${method}`, `${fullName}/${wires.get(method)}`]);
      }
    } else {
      imports += `import * as sdk from "kubewasm/${kind === "hook" ? "hooks" : kind}";\n`;
      const wrong = [];
      for (const [method, exports] of Object.entries(functions[kind])) {
        if (!methods.has(method)) {
          for (const [m, d] of methods) if (m.toLowerCase() === method.toLowerCase()) wrong.push(mistake(`the method ${m} of ${name} is never called: write ${method}`, d));
          continue;
        }
        const want = signatureOf(kind, method), found = want && disagreement(methods.get(method), want);
        if (found) wrong.push(mistake(`the method ${method} of ${name} ${found}, want ${want.text}`, methods.get(method)));
        for (const f of exports) {
          mask |= 1n << BigInt(f.bit);
          const parameters = f.parameters.map(p => p.join(": ")).join(", ");
          const args = ["plugin", ...f.parameters.map(p => p[0])].join(", ");
          body += `export function ${f.name}(${parameters}): ${f.result} { ${f.result === "void" ? "" : "return "}sdk.${f.name}<${name}>(${args}); }\n`;
        }
      }
      if (wrong.length > 0) throw wrong[0];
      if (body === "") {
        const known = Object.keys(functions[kind]);
        for (const [m, d] of methods) {
          const meant = similar(m, known);
          if (meant) throw mistake(`${name} has none of the methods of @${kind}, but ${m}; did you mean ${meant}?`, d);
        }
        throw mistake(`${name} has none of the methods of @${kind}: ${known.join(", ")}`, declaration);
      }
    }
    const fill = configuration.of(declaration);
    imports += fill.imports + `import { leave } from "kubewasm/internal/plugin";\nimport * as host from "kubewasm/internal/host";\n`;
    const configure = methods.has("configure")
      ? `  const err = plugin.configure();\n  if (err !== null) { host.reason(err.message); return 1; }\n` : "";
    return `${imports}
const plugin = new ${name}();
${fill.functions}
export function kubewasm_abi_v1(): u64 { return 0x${mask.toString(16)}; }
export function configure(): i32 {
${fill.call}${configure}  leave();
  return 0;
}
${body}`;
  }

  /** mention returns the first place in the plugin's files that names what no host has; undefined without one. */
  mention() {
    for (const source of this.files) {
      const start = source.text.search(/\b(console\s*\.|Date\b|Math\s*\.\s*(random|seed)|trace\s*\(|performance\s*\.|crypto\s*\.)/);
      if (start >= 0) return { range: { source, start } };
    }
  }

  afterCompile(module) {
    for (const [name, internal, external] of this.exports) {
      module.removeExport(name);
      module.addFunctionExport(internal, external);
    }
    const foreign = [];
    for (let i = 0; i < module.getNumFunctions(); i++) {
      const f = this.binaryen.getFunctionInfo(module.getFunctionByIndex(i));
      if (f.module && (f.module === "env" || /^[A-Z]/.test(f.module) || !/[./_]/.test(f.module) && f.module !== "kubewasm")) foreign.push(`${f.module}.${f.base}`);
    }
    if (foreign.length > 0) {
      throw mistake(`the module imports ${[...new Set(foreign)].join(", ")}, which no host has: Math.random, Date, console, trace and the like cannot be used`, this.mention());
    }
    if (this.schema) module.addCustomSection("kubewasm_schema", this.schema);
  }
}
