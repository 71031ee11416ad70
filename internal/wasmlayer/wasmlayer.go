// Package wasmlayer finds the module in a layer of an image, or in a bundle that opa build has
// made.
package wasmlayer

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
)

// Magic begins every module.
const Magic = "\x00asm"

const (
	// maxEntries is how many entries a layer may have.
	maxEntries = 1000
	// maxDataBytes is how much is read of the data of a bundle.
	maxDataBytes = 1 << 10
)

// Unpack returns the only file of a layer whose name ends in .wasm, or the layer itself if it is
// a module: some tools push one with the media type of an archive. Nothing is written to disk,
// so names lead nowhere; those that would lead out of a directory are refused all the same. So is
// a bundle of OPA with data, which its policy would not find.
func Unpack(layer []byte, maxBytes int64) ([]byte, error) {
	stream := bufio.NewReader(bytes.NewReader(layer))
	if bytes.HasPrefix(layer, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(stream)
		if err != nil {
			return nil, fmt.Errorf("decompress: %w", err)
		}
		stream = bufio.NewReader(z)
	}
	if start, _ := stream.Peek(len(Magic)); string(start) == Magic {
		var content bytes.Buffer
		if _, err := io.Copy(&content, io.LimitReader(stream, maxBytes+1)); err != nil {
			return nil, fmt.Errorf("decompress: %w", err)
		}
		if int64(content.Len()) > maxBytes {
			return nil, fmt.Errorf("it has more than %d bytes", maxBytes)
		}
		return content.Bytes(), nil
	}
	// The module, headers, and other files that are skipped.
	limited := &io.LimitedReader{R: stream, N: maxBytes + 1<<20}
	r := tar.NewReader(limited)
	var module []byte
	var found string
	var bundle, hasData bool
	for n := 0; ; n++ {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if limited.N <= 0 {
			return nil, fmt.Errorf("it has more than %d bytes", maxBytes)
		}
		if err != nil {
			return nil, fmt.Errorf("read tar: %w", err)
		}
		if n == maxEntries {
			return nil, fmt.Errorf("it has more than %d files", maxEntries)
		}
		name := strings.TrimPrefix(path.Clean("/"+header.Name), "/")
		if slices.Contains(strings.Split(header.Name, "/"), "..") {
			return nil, fmt.Errorf("file %.100q leads out of the image", header.Name)
		}
		switch name {
		case ".manifest":
			bundle = true
		case "data.json", "data.yaml":
			data, err := io.ReadAll(io.LimitReader(r, maxDataBytes))
			if err != nil {
				return nil, fmt.Errorf("read file %.100q: %w", name, err)
			}
			if text := string(bytes.Join(bytes.Fields(data), nil)); text != "" && text != "{}" {
				hasData = true
			}
		}
		if header.Typeflag == tar.TypeDir || !strings.HasSuffix(name, ".wasm") || strings.HasPrefix(path.Base(name), ".wh.") {
			continue
		}
		if header.Typeflag != tar.TypeReg {
			return nil, fmt.Errorf("file %.100q is no regular file", name)
		}
		if module != nil {
			return nil, fmt.Errorf("it has %.100q and %.100q, want one .wasm file", found, name)
		}
		if header.Size > maxBytes {
			return nil, fmt.Errorf("file %.100q has %d bytes, more than %d", name, header.Size, maxBytes)
		}
		found = name
		// The size in the header is not believed: a sparse file has any.
		var content bytes.Buffer
		if _, err := io.Copy(&content, io.LimitReader(r, maxBytes+1)); err != nil {
			return nil, fmt.Errorf("read file %.100q: %w", name, err)
		}
		if int64(content.Len()) > maxBytes {
			return nil, fmt.Errorf("file %.100q has more than %d bytes", name, maxBytes)
		}
		module = content.Bytes()
		if module == nil {
			module = []byte{}
		}
	}
	switch {
	case module == nil && bundle:
		return nil, errors.New("it is a bundle of OPA without a module: want opa build -t wasm -e ENTRYPOINT")
	case module == nil:
		return nil, errors.New("it has no .wasm file")
	case bundle && hasData:
		return nil, errors.New("it is a bundle of OPA with data, which a policy does not find here: write it into the policy, or into its settings")
	}
	return module, nil
}
