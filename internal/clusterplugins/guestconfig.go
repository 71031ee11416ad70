package clusterplugins

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/configfile"
	"github.com/kubewasm/kubewasm/internal/apiserver"
)

const (
	// maxElements bounds the elements of guestConfigFrom, and maxText the bytes of each text.
	maxElements, maxText = 8, 64 << 10
	// maxTexts bounds the texts that a process follows, and textsOfNamespace those of the plugins of a
	// namespace.
	maxTexts, textsOfNamespace = 1024, 64
	// textWait is the longest time for which objects wait for the first answer about a text.
	textWait = 5 * time.Second
)

// GuestConfigFrom is an element of the member guestConfigFrom of a spec: a text of a ConfigMap or a
// Secret that is guestConfig, or a part of it.
type GuestConfigFrom struct {
	// ConfigMap and Secret are keys of objects in the cluster, which the program reads with its own
	// rights. One of them is set. That of an AdmissionPolicy is in the namespace of the policy.
	ConfigMap *host.ObjectKey `json:"configMap,omitempty"`
	Secret    *host.ObjectKey `json:"secret,omitempty"`
	// Member is the name of the member of guestConfig that is the text, as a string. Without it the
	// text is the whole guestConfig, and there is no other element.
	Member string `json:"member,omitempty"`
}

// ConfigFrom is the name of the member of a spec that has a list of [GuestConfigFrom].
const ConfigFrom = "guestConfigFrom"

// resolved is a spec after its guestConfigFrom was read.
type resolved struct {
	spec json.RawMessage
	err  error
	// secret reports whether a text is of a Secret.
	secret bool
	sum    [sha256.Size]byte
}

// same reports whether two specs are equal, as far as texts decide.
func (r *resolved) same(other *resolved) bool {
	return r == nil && other == nil || r != nil && other != nil && r.sum == other.sum
}

// errUnread is the error of an object whose guestConfigFrom was not read in this process.
var errUnread = errors.New("guestConfigFrom: the API server has not sent the texts")

// Settings returns the spec to load: with guestConfig in the place of guestConfigFrom. The error says
// why guestConfig is unknown; the spec has the other members then.
func (o *Object) Settings() (json.RawMessage, error) {
	switch {
	case o.resolved != nil:
		return o.resolved.spec, o.resolved.err
	case o.Kept != nil:
		return o.Kept, nil
	}
	members, ok := refers(o.Spec)
	if !ok {
		return o.Spec, nil
	}
	return join(members), errUnread
}

// refers returns the members of a spec if it has guestConfigFrom, or its shadow has, without it.
func refers(spec json.RawMessage) (members map[string]json.RawMessage, ok bool) {
	if !bytes.Contains(spec, []byte(`"`+ConfigFrom+`"`)) || json.Unmarshal(spec, &members) != nil {
		return nil, false // The mistakes of a spec are found when it is applied.
	}
	if _, ok = members[ConfigFrom]; ok {
		delete(members, ConfigFrom)
	}
	if shadow, has := refers(members["shadow"]); has {
		members["shadow"], ok = join(shadow), true
	}
	return members, ok
}

func join(members map[string]json.RawMessage) json.RawMessage {
	text, err := json.Marshal(members)
	if err != nil {
		return json.RawMessage("{}") // There is no error of these types.
	}
	return text
}

// textKey names a text of the cluster.
type textKey struct{ plural, namespace, name, key string }

// String names the text in messages.
func (k textKey) String() string {
	kind := "ConfigMap"
	if k.plural == "secrets" {
		kind = "Secret"
	}
	return kind + " " + k.namespace + "/" + k.name
}

// text is a text that the process follows. The mutex of the Watch guards it.
type text struct {
	// stop ends its Follower, nil before that runs.
	stop  context.CancelFunc
	since time.Time
	// known is set after the first answer. Then value is the text, or err the reason that there is none.
	known bool
	value []byte
	err   error
}

// reading resolves the objects of a snapshot. The mutex of the Watch is held.
type reading struct {
	*Watch
	now  time.Time
	used map[textKey]*text
	of   map[string]int
	room room
	// wait is the time until a text without an answer keeps objects waiting no more, 0 for none.
	wait time.Duration
	// secrets are the texts of Secrets.
	secrets []secretText
}

// resolve reads the texts of objects, and follows those that they name and no others. wait is the time
// for which the objects should wait for texts, 0 if they need not.
func (w *Watch) resolve(objects []Object, now time.Time) (wait time.Duration) {
	r := &reading{Watch: w, now: now, used: map[textKey]*text{}, of: map[string]int{}, room: room{of: map[string]int{}}}
	for i := range objects {
		r.object(&objects[i])
		if other := objects[i].Else; other != nil {
			copied := *other
			objects[i].Else = &copied
			r.object(&copied)
		}
	}
	for key, t := range w.texts {
		if r.used[key] == nil && t.stop != nil {
			t.stop()
		}
	}
	w.texts = r.used
	w.cfg.Secrets.set(r.secrets, now)
	return r.wait
}

// object resolves an object.
func (r *reading) object(o *Object) {
	members, ok := refers(o.Spec)
	if !ok {
		return
	}
	of := new(resolved)
	sum := sha256.New()
	var errs []error
	for _, part := range []string{"", "shadow"} {
		to, whole := members, o.Spec
		if part != "" {
			to = nil
			var all map[string]json.RawMessage
			if json.Unmarshal(o.Spec, &all) != nil || json.Unmarshal(members[part], &to) != nil {
				continue
			}
			whole = all[part]
		}
		if err := r.config(o.Namespace, whole, to, of); err != nil {
			errs = append(errs, err)
			continue
		}
		if part != "" {
			members[part] = join(to)
		}
	}
	of.spec, of.err = join(members), errors.Join(errs...)
	if of.err == nil && !r.room.take(o.Namespace, len(of.spec)) {
		of.err = ErrTooLarge
	}
	fmt.Fprintf(sum, "%v\n%s", of.err, of.spec)
	sum.Sum(of.sum[:0])
	if o.resolved, o.Kept = of, nil; !of.secret && of.err == nil {
		o.Kept = of.spec
	}
}

// config sets guestConfig of the members of a plugin, by its guestConfigFrom.
func (r *reading) config(namespace string, whole json.RawMessage, members map[string]json.RawMessage, of *resolved) error {
	var from struct {
		List json.RawMessage `json:"guestConfigFrom"`
	}
	if json.Unmarshal(whole, &from) != nil || from.List == nil {
		return nil
	}
	var list []GuestConfigFrom
	if err := configfile.JSON(from.List, &list); err != nil {
		return fmt.Errorf("%s: %w", ConfigFrom, err)
	}
	if len(list) > maxElements {
		return fmt.Errorf("%s has %d elements, want at most %d", ConfigFrom, len(list), maxElements)
	}
	var errs []error
	fields := map[string]json.RawMessage{}
	if config := members["guestConfig"]; config != nil && json.Unmarshal(config, &fields) != nil {
		return fmt.Errorf("guestConfig is no object, and %s adds to it", ConfigFrom)
	}
	for i := range list {
		f, path := &list[i], fmt.Sprintf("%s[%d]", ConfigFrom, i)
		_, twice := fields[f.Member]
		switch {
		case f.Member == "" && (len(list) > 1 || members["guestConfig"] != nil):
			errs = append(errs, fmt.Errorf("%s.member is empty: the text would replace the others, and guestConfig", path))
			continue
		case twice:
			errs = append(errs, fmt.Errorf("%s.member is %q, which guestConfig has already", path, f.Member))
			continue
		}
		value, secret, err := r.read(f, path, namespace)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if secret {
			of.secret = true
			r.secrets = append(r.secrets, secretText{cmp.Or(f.Secret.Namespace, namespace), string(value)})
		}
		var encoded json.RawMessage
		if f.Member == "" {
			encoded, err = host.GuestConfig(value).MarshalJSON()
		} else {
			encoded, err = json.Marshal(string(value))
		}
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		if fields[f.Member] = encoded; f.Member == "" {
			members["guestConfig"] = encoded
		}
	}
	if len(list) != 0 && list[0].Member != "" {
		members["guestConfig"] = join(fields)
	}
	return errors.Join(errs...)
}

// read returns the text of an element for a plugin of a namespace, empty for one of the cluster.
func (r *reading) read(f *GuestConfigFrom, path, namespace string) (value []byte, secret bool, err error) {
	if (f.ConfigMap == nil) == (f.Secret == nil) {
		return nil, false, fmt.Errorf("%s: set one of configMap and secret", path)
	}
	at, plural, name := f.ConfigMap, "configmaps", "configMap"
	if at == nil {
		at, plural, name = f.Secret, "secrets", "secret"
	}
	path += "." + name
	key := textKey{plural, cmp.Or(at.Namespace, namespace), at.Name, at.Key}
	switch {
	case namespace != "" && key.namespace != namespace:
		return nil, false, fmt.Errorf("%s.namespace is %q, and the policy is of %q", path, key.namespace, namespace)
	case key.namespace == "":
		return nil, false, fmt.Errorf("%s.namespace is empty", path)
	case key.name == "" || key.key == "":
		return nil, false, fmt.Errorf("%s: set name and key", path)
	}
	t := r.used[key]
	if t == nil {
		if len(r.used) >= maxTexts || namespace != "" && r.of[namespace] >= textsOfNamespace {
			return nil, false, fmt.Errorf("%s: the plugins of a namespace may name %d keys, and all %d", path, textsOfNamespace, maxTexts)
		}
		r.of[namespace]++
		if t = r.texts[key]; t == nil {
			t = &text{since: r.now}
		}
		r.used[key] = t
	}
	if !t.known {
		r.wait = max(r.wait, textWait-r.now.Sub(t.since))
		return nil, false, fmt.Errorf("%s: %s: %w", path, key, errUnread)
	}
	if t.err != nil {
		return nil, false, fmt.Errorf("%s: %s %w", path, key, t.err)
	}
	return t.value, plural == "secrets", nil
}

// begin runs the Followers of new texts, by start, until ctx ends or their texts are named no more.
func (w *Watch) begin(ctx context.Context, start func(func())) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, t := range w.texts {
		if t.stop != nil {
			continue
		}
		of, stop := context.WithCancel(ctx)
		t.stop = stop
		f := &apiserver.Follower{
			Client: w.cfg.Client, Path: "/api/v1/namespaces/" + url.PathEscape(key.namespace) + "/" + key.plural, Name: key.name,
			Set: func(_ context.Context, objects []json.RawMessage) error {
				w.read(t, key, append(objects, nil)[0])
				return nil
			},
			Change: func(_ context.Context, object json.RawMessage, deleted bool) error {
				if deleted {
					object = nil
				}
				w.read(t, key, object)
				return nil
			},
			Failed: func(err error) { w.unread(t, key, err) },
		}
		start(func() { _ = f.Run(of) }) // The error is that of the context.
	}
}

// read receives the object of a text, nil if there is none.
func (w *Watch) read(t *text, key textKey, object json.RawMessage) {
	var o struct {
		Data       map[string]json.RawMessage `json:"data"`
		BinaryData map[string][]byte          `json:"binaryData"`
	}
	var value []byte
	err := errors.New("does not exist")
	if object != nil {
		err = fmt.Errorf("has no key %q", key.key)
		if json.Unmarshal(object, &o) != nil {
			err = errors.New("cannot be read")
		}
		if binary, ok := o.BinaryData[key.key]; ok {
			value, err = binary, nil
		} else if raw, ok := o.Data[key.key]; ok {
			value, err = decode(raw, key.plural)
		}
		if len(value) > maxText {
			value, err = nil, fmt.Errorf("has %d bytes under the key %q, more than %d", len(value), key.key, maxText)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if t.known && bytes.Equal(t.value, value) && fmt.Sprint(t.err) == fmt.Sprint(err) {
		return
	}
	t.known, t.value, t.err = true, value, err
	w.tell()
}

// decode returns the text of a member of data.
func decode(raw json.RawMessage, plural string) ([]byte, error) {
	if plural == "secrets" {
		var value []byte
		if json.Unmarshal(raw, &value) != nil {
			return nil, errors.New("has data that is not base64")
		}
		return value, nil
	}
	var value string
	if json.Unmarshal(raw, &value) != nil {
		return nil, errors.New("has data that is no text")
	}
	return []byte(value), nil
}

// unread receives the error of following a text. What was read before stays.
func (w *Watch) unread(t *text, key textKey, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var status *apiserver.StatusError
	if t.known && (t.err == nil || !errors.As(err, &status)) {
		return
	}
	if t.known && t.err.Error() == "cannot be read: "+err.Error() {
		return
	}
	t.known, t.err = true, fmt.Errorf("cannot be read: %w", err)
	w.tell()
}
