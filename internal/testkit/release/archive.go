package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
	"time"
)

// entry is a file, or a directory if its name ends with a slash, of an archive.
type entry struct {
	name string
	mode int64
	data []byte
}

// pack returns a tar of entries, compressed by gzip, and the tar itself. The entries belong to root.
func pack(at time.Time, entries ...entry) (compressed, plain []byte, err error) {
	var archive, zipped bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, e := range entries {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: e.name, Mode: e.mode, Size: int64(len(e.data)), ModTime: at, Format: tar.FormatUSTAR}
		if e.name[len(e.name)-1] == '/' {
			header.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, nil, err
		}
		if _, err := w.Write(e.data); err != nil {
			return nil, nil, err
		}
	}
	z, err := gzip.NewWriterLevel(&zipped, gzip.BestCompression)
	if err != nil {
		return nil, nil, err
	}
	if err := w.Close(); err != nil {
		return nil, nil, err
	}
	_, err = z.Write(archive.Bytes())
	err = errors.Join(err, z.Close())
	return zipped.Bytes(), archive.Bytes(), err
}

// archiveName returns the name of the archive of a program, without its extension.
func (m *maker) archiveName(p program, on platform) string {
	return p.full() + "_" + m.number() + "_" + on.os + "_" + on.arch
}

// archive writes the archive of a program: a zip for Windows, a tar for the others.
func (m *maker) archive(p program, on platform, file string) error {
	binary, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	license, err := os.ReadFile(filepath.Join(m.repo, "LICENSE"))
	if err != nil {
		return err
	}
	entries := []entry{{"LICENSE", 0o644, license}, {filepath.Base(file), 0o755, binary}}
	name := m.archiveName(p, on)
	if on.os != "windows" {
		compressed, _, err := pack(m.time, entries...)
		return errors.Join(err, m.write(name+".tar.gz", compressed))
	}
	var buffer bytes.Buffer
	z := zip.NewWriter(&buffer)
	for _, e := range entries {
		header := &zip.FileHeader{Name: e.name, Method: zip.Deflate, Modified: m.time}
		header.SetMode(os.FileMode(e.mode)) //nolint:gosec // It is one of two.
		w, err := z.CreateHeader(header)
		if err != nil {
			return err
		}
		if _, err := w.Write(e.data); err != nil {
			return err
		}
	}
	return errors.Join(z.Close(), m.write(name+".zip", buffer.Bytes()))
}
