// Package diskcache keeps directories of files within a size. Several processes may share a
// directory: a file appears when it is whole, and one that is removed while another process
// reads it stays readable there. On Windows it is removed the next time.
package diskcache

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// StaleTime is the age at which an unfinished file is one that a process left behind.
const StaleTime = time.Hour

// Unfinished files begin with the prefix, as Write makes them, or end with the suffix, as
// wazero does.
const (
	unfinishedPrefix = "new-"
	unfinishedSuffix = ".tmp"
)

// Write makes a file of the parts, whole or not at all.
func Write(name string, parts ...[]byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(name), unfinishedPrefix+"*") // Mode 0600.
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	for _, part := range parts {
		if _, err := f.Write(part); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	// A crash of the machine must not leave a name without its content.
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}

// Use marks a file as used now, unless that was done within the last minute. info is the
// file's.
func Use(name string, info fs.FileInfo) {
	if now := time.Now(); now.Sub(info.ModTime()) > time.Minute {
		_ = os.Chtimes(name, now, now)
	}
}

// Trim removes the files of the directories that were not used for the longest time, until
// the others have at most so many bytes together, and unfinished files that are stale. It
// returns the bytes that stay. Directories that do not exist are empty.
func Trim(max int64, dirs ...string) (bytes int64, err error) {
	type file struct {
		name string
		size int64
		used time.Time
	}
	var files []file
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, fmt.Errorf("read cache: %w", err)
		}
		for _, entry := range entries {
			info, err := entry.Info()
			if err != nil || !info.Mode().IsRegular() {
				continue // Another process has removed or renamed it, or it is none of the cache.
			}
			name := filepath.Join(dir, entry.Name())
			if strings.HasPrefix(entry.Name(), unfinishedPrefix) || strings.HasSuffix(entry.Name(), unfinishedSuffix) {
				if time.Since(info.ModTime()) > StaleTime {
					_ = os.Remove(name)
				}
				continue
			}
			files = append(files, file{name, info.Size(), info.ModTime()})
			bytes += info.Size()
		}
	}
	slices.SortFunc(files, func(a, b file) int { return a.used.Compare(b.used) })
	var errs []error
	for _, f := range files {
		if bytes <= max {
			break
		}
		if err := os.Remove(f.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove from cache: %w", err))
			continue
		}
		bytes -= f.size
	}
	return bytes, errors.Join(errs...)
}

// UseDir marks the files of a directory as used now, unless that was done within the last
// minute, so that TrimDirs of the directory above keeps it.
func UseDir(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil && info.Mode().IsRegular() {
			Use(filepath.Join(dir, entry.Name()), info)
		}
	}
}

// TrimDirs removes whole directories below dir: those that were not used for maxAge, and those
// that were not used for the longest time until the others have at most max bytes together. One
// that was used within the last hour stays in any case, since a process may be at it. A
// directory is used when one of its files is.
func TrimDirs(dir string, max int64, maxAge time.Duration) error {
	type unit struct {
		name string
		size int64
		used time.Time
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read cache: %w", err)
	}
	var units []unit
	var bytes int64
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil || !info.IsDir() {
			continue
		}
		u := unit{name: filepath.Join(dir, entry.Name()), used: info.ModTime()}
		files, err := os.ReadDir(u.name)
		if err != nil {
			continue // Another process has removed it.
		}
		for _, file := range files {
			if info, err := file.Info(); err == nil {
				u.size += info.Size()
				if info.ModTime().After(u.used) {
					u.used = info.ModTime()
				}
			}
		}
		units = append(units, u)
		bytes += u.size
	}
	slices.SortFunc(units, func(a, b unit) int { return a.used.Compare(b.used) })
	var errs []error
	for _, u := range units {
		age := time.Since(u.used)
		if age < StaleTime || age < maxAge && bytes <= max {
			break
		}
		if err := os.RemoveAll(u.name); err != nil {
			errs = append(errs, fmt.Errorf("remove from cache: %w", err))
			continue
		}
		bytes -= u.size
	}
	return errors.Join(errs...)
}
