use alloc::borrow::ToOwned;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::field::{write_steps, Path, Step};
use crate::json::{self, Kind, ToJson, Value};
use crate::{host, memory, Call};

/// Changes of an object. Each is a no-op if the object has the value already, so that a policy
/// need not look first.
///
/// ```
/// use kubewasm::admission::{Patch, Path};
///
/// let mut patch = Patch::new(kubewasm::Call::for_test(), br#"{"metadata": {"name": "web"}}"#);
/// patch.set(&Path::new("metadata").child("labels").key("a/b"), "c");
/// assert_eq!(patch.operations().unwrap().unwrap(), r#"[{"op":"add","path":"/metadata/labels","value":{"a/b":"c"}}]"#);
/// ```
#[derive(Debug)]
pub struct Patch<'a> {
    call: Call<'a>,
    /// None is the object of the request, which is fetched when it is read.
    object: Option<&'a [u8]>,
    tree: Option<Tree<'a>>,
    operations: String,
    whole: Option<String>,
    error: Option<String>,
}

/// A document of which the parts that a patch has touched are read.
#[derive(Clone, Debug)]
enum Tree<'a> {
    Raw(Value<'a>),
    Object(Vec<(String, Tree<'a>)>),
    Array(Vec<Tree<'a>>),
}

impl<'a> Tree<'a> {
    fn of_text(call: Call<'a>, text: &str) -> Self {
        Tree::Raw(Value::of(call, memory::keep(call, text.as_bytes().to_owned())))
    }

    fn kind(&self) -> Kind {
        match self {
            Tree::Raw(v) => v.kind(),
            Tree::Object(_) => Kind::Object,
            Tree::Array(_) => Kind::Array,
        }
    }

    /// Reads the members or elements of the value.
    fn open(&mut self) -> &mut Self {
        if let Tree::Raw(v) = *self {
            match v.kind() {
                Kind::Object => {
                    let mut members: Vec<(String, Tree<'a>)> = Vec::new();
                    for (key, value) in v.members() {
                        match members.iter_mut().find(|m| m.0 == key) {
                            Some(known) => known.1 = Tree::Raw(value),
                            None => members.push((key.to_owned(), Tree::Raw(value))),
                        }
                    }
                    *self = Tree::Object(members);
                }
                Kind::Array => *self = Tree::Array(v.elements().map(Tree::Raw).collect()),
                _ => {}
            }
        }
        self
    }

    fn step(&mut self, step: &Step) -> Option<&mut Tree<'a>> {
        match (self.open(), step) {
            (Tree::Object(members), step) => {
                let name = step.member()?;
                members.iter_mut().find(|m| m.0 == name).map(|m| &mut m.1)
            }
            (Tree::Array(elements), Step::Index(i)) => elements.get_mut(*i),
            _ => None,
        }
    }

    fn at(&mut self, steps: &[Step]) -> Option<&mut Tree<'a>> {
        steps.iter().try_fold(self, |tree, step| tree.step(step))
    }

    fn append(&self, out: &mut String) {
        match self {
            Tree::Raw(v) => v.append_json(out),
            Tree::Object(members) => {
                for (i, (key, value)) in members.iter().enumerate() {
                    out.push(if i == 0 { '{' } else { ',' });
                    json::append_text(out, key);
                    out.push(':');
                    value.append(out);
                }
                out.push_str(if members.is_empty() { "{}" } else { "}" });
            }
            Tree::Array(elements) => {
                for (i, value) in elements.iter().enumerate() {
                    out.push(if i == 0 { '[' } else { ',' });
                    value.append(out);
                }
                out.push_str(if elements.is_empty() { "[]" } else { "]" });
            }
        }
    }

    fn text(&self) -> String {
        let mut out = String::new();
        self.append(&mut out);
        out
    }
}

/// Reports whether two texts are the same value. Objects are equal in any order of their members.
fn equal(a: Value<'_>, b: Value<'_>, depth: usize) -> bool {
    const DEEPEST: usize = 100; // Deeper values count as different.
    if a.raw() == b.raw() {
        return true;
    }
    if a.kind() != b.kind() || depth > DEEPEST {
        return false;
    }
    match a.kind() {
        Kind::String => a.text() == b.text(),
        Kind::Number => a.integer().is_some() && a.integer() == b.integer(),
        Kind::Array => {
            let mut others = b.elements();
            a.elements().all(|v| others.next().map_or(false, |o| equal(v, o, depth + 1))) && others.next().is_none()
        }
        Kind::Object => {
            a.members().count() == b.members().count() && a.members().all(|(k, v)| b.get(k).map_or(false, |o| equal(v, o, depth + 1)))
        }
        _ => false,
    }
}

impl<'a> Patch<'a> {
    /// Returns a patch of an object in JSON that changes nothing.
    pub fn new(call: impl Into<Call<'a>>, object: &'a [u8]) -> Self {
        Patch { call: call.into(), object: Some(object), tree: None, operations: String::new(), whole: None, error: None }
    }

    pub(crate) fn of_request(call: Call<'a>) -> Self {
        Patch { object: None, ..Patch::new(call, &[]) }
    }

    fn tree(&mut self) -> Option<&mut Tree<'a>> {
        if self.error.is_some() {
            return None;
        }
        if self.tree.is_none() {
            let v = Value::of(self.call, self.object.unwrap_or_else(|| host::ask(self.call, host::admission_object)));
            if v.kind() != Kind::Object {
                self.error = Some("patch: the request has no object".to_owned());
                return None;
            }
            self.tree = Some(Tree::Raw(v));
        }
        self.tree.as_mut()
    }

    fn fail(&mut self, steps: &[Step], what: &str) {
        let mut text = "patch: ".to_owned();
        let _ = write_steps(&mut text, steps);
        text.push_str(": ");
        text.push_str(what);
        self.error = Some(text);
    }

    fn operation(&mut self, op: &str, steps: &[Step], more: &str, value: Option<&str>) {
        let out = &mut self.operations;
        out.push_str(if out.is_empty() { "[" } else { "," });
        out.push_str("{\"op\":\"");
        out.push_str(op);
        out.push_str("\",\"path\":");
        let mut pointer = String::new();
        for step in steps {
            pointer.push('/');
            match step {
                Step::Index(i) => pointer.push_str(&i.to_string()),
                Step::Member(name) | Step::Key(name) => pointer.push_str(&name.replace('~', "~0").replace('/', "~1")),
            }
        }
        pointer.push_str(more);
        json::append_text(out, &pointer);
        if let Some(value) = value {
            out.push_str(",\"value\":");
            out.push_str(value);
        }
        out.push('}');
    }

    /// Reports whether the object has the field, as it is with the changes so far.
    pub fn has(&mut self, path: &Path) -> bool {
        self.tree().map_or(false, |tree| tree.at(path.steps()).is_some())
    }

    /// Sets a field. Objects on the way to it that are not there are added; elements of lists are
    /// not.
    pub fn set<T: ToJson + ?Sized>(&mut self, path: &Path, value: &T) {
        self.set_text(path.steps(), json::to_json(value));
    }

    fn set_text(&mut self, steps: &[Step], mut text: String) {
        let call = self.call;
        let tree = match self.tree() {
            Some(tree) => tree,
            None => return,
        };
        if steps.is_empty() {
            return self.fail(steps, "the whole object is set by set_object");
        }
        if let Some(old) = tree.at(steps) {
            let is = old.text();
            if equal(Value::of(call, is.as_bytes()), Value::of(call, text.as_bytes()), 0) {
                return;
            }
            *old = Tree::of_text(call, &text);
            return self.operation("replace", steps, "", Some(&text));
        }
        let mut n = steps.len();
        loop {
            n -= 1;
            let (parent, missing) = (&steps[..n], &steps[n]);
            let name = missing.member();
            let found = self.tree().and_then(|tree| tree.at(parent));
            match (found, name) {
                (Some(tree), Some(name)) if tree.kind() == Kind::Object => {
                    if let Tree::Object(members) = tree.open() {
                        members.push((name.to_owned(), Tree::of_text(call, &text)));
                    }
                    return self.operation("add", &steps[..=n], "", Some(&text));
                }
                (Some(tree), Some(name)) if tree.kind() == Kind::Null => {
                    text = wrap(name, &text);
                    *tree = Tree::of_text(call, &text);
                    return self.operation("replace", parent, "", Some(&text));
                }
                (None, Some(name)) if n > 0 => text = wrap(name, &text),
                (_, None) => return self.fail(&steps[..=n], "there is no such element"),
                (Some(tree), _) => {
                    let what = ["is ", tree.kind().name(), ", want object"].concat();
                    return self.fail(parent, &what);
                }
                (None, Some(_)) => return self.fail(parent, "is nothing, want object"),
            }
        }
    }

    /// Sets a field that is not there or null, and reports whether it did.
    pub fn default<T: ToJson + ?Sized>(&mut self, path: &Path, value: &T) -> bool {
        match self.tree() {
            Some(tree) => match tree.at(path.steps()) {
                Some(old) if old.kind() != Kind::Null => return false,
                _ => {}
            },
            None => return false,
        }
        self.set(path, value);
        self.error.is_none()
    }

    /// Appends an element to a list, which is added if it is not there.
    pub fn append<T: ToJson + ?Sized>(&mut self, path: &Path, value: &T) {
        let (call, text) = (self.call, json::to_json(value));
        let kind = match self.tree() {
            Some(tree) => tree.at(path.steps()).map(|t| (t.kind(), t)),
            None => return,
        };
        match kind {
            Some((Kind::Array, tree)) => {
                if let Tree::Array(elements) = tree.open() {
                    elements.push(Tree::of_text(call, &text));
                }
                self.operation("add", path.steps(), "/-", Some(&text));
            }
            None | Some((Kind::Null, _)) => self.set_text(path.steps(), ["[", &text, "]"].concat()),
            Some((kind, _)) => self.fail(path.steps(), &["is ", kind.name(), ", want array"].concat()),
        }
    }

    /// Removes a field, if it is there.
    pub fn remove(&mut self, path: &Path) {
        let (last, parent) = match path.steps().split_last() {
            Some(both) => both,
            None => return,
        };
        let removed = match self.tree().and_then(|tree| tree.at(parent)).map(Tree::open) {
            Some(Tree::Object(members)) => match last.member().and_then(|name| members.iter().position(|m| m.0 == name)) {
                Some(i) => {
                    members.remove(i);
                    true
                }
                None => false,
            },
            Some(Tree::Array(elements)) => match last {
                Step::Index(i) if *i < elements.len() => {
                    elements.remove(*i);
                    true
                }
                _ => false,
            },
            _ => false,
        };
        if removed {
            self.operation("remove", path.steps(), "", None);
        }
    }

    /// Sets the whole object, in JSON.
    pub fn set_object(&mut self, object: &str) {
        if !json::is_valid(object.as_bytes()) || Call::with(|call| Value::of(call, object.as_bytes()).kind()) != Kind::Object {
            self.error = Some("patch: what the object is set to is no JSON object".to_owned());
            return;
        }
        self.whole = Some(object.to_owned());
    }

    /// Returns the JSON Patch (RFC 6902), None if nothing changes; or the first mistake.
    pub fn operations(&self) -> Result<Option<String>, String> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        if self.operations.is_empty() || self.whole.is_some() {
            return Ok(None);
        }
        Ok(Some([self.operations.as_str(), "]"].concat()))
    }

    /// Sets the version of the object, also of one that was set as a whole.
    pub(crate) fn set_api_version(&mut self, version: &str) {
        let path = Path::new("apiVersion");
        match self.whole.take() {
            Some(whole) if self.error.is_none() => {
                let mut tree = Tree::of_text(self.call, &whole);
                match tree.at(path.steps()) {
                    Some(old) => *old = Tree::of_text(self.call, &json::to_json(version)),
                    None => {
                        if let Tree::Object(members) = tree.open() {
                            members.push(("apiVersion".to_owned(), Tree::of_text(self.call, &json::to_json(version))));
                        }
                    }
                }
                self.whole = Some(tree.text());
            }
            _ => self.set(&path, version),
        }
    }

    /// Hands the changes over to the host.
    pub(crate) fn give(&self) -> Result<(), String> {
        let operations = self.operations()?;
        match (&self.whole, operations) {
            (Some(object), _) => host::give(host::admission_mutated_object, object.as_bytes()),
            (None, Some(operations)) => host::give(host::admission_patch, operations.as_bytes()),
            (None, None) => {}
        }
        Ok(())
    }
}

/// Returns an object with one member.
fn wrap(name: &str, text: &str) -> String {
    let mut out = String::from("{");
    json::append_text(&mut out, name);
    out.push(':');
    out.push_str(text);
    out.push('}');
    out
}
