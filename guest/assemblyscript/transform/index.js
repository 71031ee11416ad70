// The transform of the compiler that makes a module for kubewasm of a class with a decorator:
// it exports the functions that the class has methods for, fills the fields with the decorator
// @config, and adds the schema of a service. kubewasm build gives it to the compiler.

import { readFileSync } from "node:fs";
import { posix as path } from "node:path";
import { functions } from "./functions.js";
import { Configuration } from "./configuration.js";

// What the compiler calls these in its syntax tree.
const classDeclaration = 52, methodDeclaration = 59, namespaceDeclaration = 60, variable = 48, literal = 17;
const exported = 2, stringLiteral = 2;
const kinds = ["scheduler", "admission", "hook", "service"];

/** signatureOf returns the signature of a method, as the comment of the module of its kind has it; null if it has none. */
function signatureOf(kind, method) {
  const text = readFileSync(new URL(`../${kind === "hook" ? "hooks" : kind}.ts`, import.meta.url), "utf8");
  const found = new RegExp(`^//     (${method}\\(([^)]*)\\): .*)$`, "m").exec(text);
  return found && { text: found[1], parameters: found[2] === "" ? 0 : found[2].split(", ").length };
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
    if (plugins.length === 0) throw new Error(`kubewasm: no class has one of the decorators ${kinds.map(k => "@" + k).join(", ")}`);
    if (plugins.length > 1) throw new Error(`kubewasm: ${plugins.map(p => p.declaration.name.text).join(" and ")} are plugins: a module has one`);
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
      if (!point) throw new Error(`kubewasm: ${name} extends none of the extension points that kubewasm gen has written`);
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
          for (const m of methods.keys()) if (m.toLowerCase() === method.toLowerCase()) wrong.push(`the method ${m} of ${name} is never called: write ${method}`);
          continue;
        }
        const want = signatureOf(kind, method), given = methods.get(method).signature.parameters.length;
        if (want && want.parameters !== given) wrong.push(`the method ${method} of ${name} has ${given} parameters, want ${want.text}`);
        for (const f of exports) {
          mask |= 1n << BigInt(f.bit);
          const parameters = f.parameters.map(p => p.join(": ")).join(", ");
          const args = ["plugin", ...f.parameters.map(p => p[0])].join(", ");
          body += `export function ${f.name}(${parameters}): ${f.result} { ${f.result === "void" ? "" : "return "}sdk.${f.name}<${name}>(${args}); }\n`;
        }
      }
      if (wrong.length > 0) throw new Error(`kubewasm: ${wrong.join("; ")}`);
      if (body === "") throw new Error(`kubewasm: ${name} has none of the methods of @${kind}: ${Object.keys(functions[kind]).join(", ")}`);
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
      throw new Error(`kubewasm: the module imports ${[...new Set(foreign)].join(", ")}, which no host has: Math.random, Date, console, trace and the like cannot be used`);
    }
    if (this.schema) module.addCustomSection("kubewasm_schema", this.schema);
  }
}
