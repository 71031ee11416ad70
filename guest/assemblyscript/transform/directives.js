// The comments from which the metadata of a module are made, as in Go:
//
//     //kubewasm:name zone
//     //kubewasm:version 1.2.0
//     //kubewasm:reads node.metadata.labels node.spec.taints
//
// Without them the name and the version are those of package.json.

const known = ["name", "version", "reads", "decides", "matches"];

export class Directives {
  found = { reads: [], decides: [], matches: [] };

  /** read reads the directives of a file. */
  read(file, text) {
    text.split("\n").forEach((line, i) => {
      const almost = /^\s*(?:\/\/|\/\*)\s*kubewasm:\s*(\w+)\s*(.*)$/i.exec(line);
      if (!almost) return;
      const at = `${file}:${i + 1}: `;
      const directive = /^\/\/kubewasm:(\w+)\s*(.*)$/.exec(line);
      if (!directive) {
        if (known.includes(almost[1])) throw new Error(`kubewasm: ${at}${line.trim()} is a comment, not a directive: write //kubewasm:${almost[1]}`);
        return;
      }
      const [, name, rest] = directive;
      const words = rest.split(/\s+/).filter(w => w !== "");
      if (!known.includes(name)) throw new Error(`kubewasm: ${at}there is no directive //kubewasm:${name}, only ${known.join(", ")}`);
      if (words.length === 0) throw new Error(`kubewasm: ${at}//kubewasm:${name} says nothing`);
      if (name === "matches") {
        if (words.length === 1) throw new Error(`kubewasm: ${at}//kubewasm:matches is operations and resources, as in CREATE,UPDATE pods`);
        this.found.matches.push(...rules(words));
      } else if (name in this.found && Array.isArray(this.found[name])) {
        this.found[name].push(...words);
      } else if (words.length > 1) {
        throw new Error(`kubewasm: ${at}//kubewasm:${name} is one word, not "${rest.trim()}"`);
      } else if (this.found[name]) {
        throw new Error(`kubewasm: ${at}//kubewasm:${name} is there twice`);
      } else {
        this.found[name] = words[0];
      }
    });
  }

  /** metadata returns the custom section of a plugin of the kind: SPEC.md, section 7. */
  metadata(kind, about) {
    const { name, version, reads, decides, matches } = this.found;
    if (decides.length > 0 && kind !== "hook") throw new Error("kubewasm: //kubewasm:decides is for hooks");
    if (matches.length > 0 && kind !== "admission") throw new Error("kubewasm: //kubewasm:matches is for admission plugins");
    const m = {};
    const set = (key, value) => { if (value && value.length !== 0) m[key] = value; };
    const sorted = list => [...new Set(list)].sort();
    set("name", name ?? about.name?.replace(/^@.*\//, ""));
    set("version", version ?? about.version);
    m.kinds = [kind];
    set("reads", sorted(reads));
    set("decides", sorted(decides));
    set("matches", matches);
    m.sdk = "kubewasm/assemblyscript";
    m.abi = 1;
    return m;
  }
}

/** rules returns the rules of a directive: one for each group and version. */
function rules(words) {
  const list = [];
  for (const word of words.slice(1)) {
    const [name, sub] = word.split(/\/(.*)/s);
    const dot = name.indexOf(".");
    let resource = dot < 0 ? name : name.substring(0, dot);
    let group = dot < 0 ? "" : name.substring(dot + 1);
    let version = "*";
    const first = group.split(".")[0];
    if (/^v[0-9]+((alpha|beta)[0-9]+)?$/.test(first)) {
      version = first;
      group = group.substring(first.length + 1);
    }
    if (sub !== undefined) resource += "/" + sub;
    const same = list.find(r => r.apiGroups[0] === group && r.apiVersions[0] === version);
    if (same) same.resources.push(resource);
    else list.push({ operations: words[0].split(","), apiGroups: [group], apiVersions: [version], resources: [resource] });
  }
  return list;
}
