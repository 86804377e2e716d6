package standin

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The Go image contains the files that a build needs, without tests, documents and the toolchain's own sources.
func TestUnneededToolchainFilesAreLeftOut(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{
		"bin/go", "bin/gofmt", "pkg/tool/compile", "src/fmt/print.go", "src/fmt/print_test.go", "src/fmt/testdata/x", "src/cmd/go/main.go", "doc/a", "test/b",
	} {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(name), 0o755))
	}
	require.NoError(t, os.Symlink("go", filepath.Join(root, "bin", "golink")))
	found := readArchive(
		t,
		func(a *archiveWriter) error { return a.addTree("/usr/local/go", root, isUnneededToolchainFile) },
	)
	assert.Equal(t, map[string]string{
		"usr/local/go/bin/go":           "bin/go",
		"usr/local/go/bin/golink":       "-> go",
		"usr/local/go/pkg/tool/compile": "pkg/tool/compile",
		"usr/local/go/src/fmt/print.go": "src/fmt/print.go",
	}, found)
}

// A script from Go's module cache is not executable there, but is executable in an image.
func TestScriptInAnImageIsExecutable(t *testing.T) {
	source := filepath.Join(t.TempDir(), "script.sh")
	require.NoError(t, os.WriteFile(source, []byte("#!/bin/sh\n"), 0o400))
	var out bytes.Buffer
	a := newArchiveWriter(&out)
	require.NoError(t, a.addScript("/entrypoint", source))
	require.NoError(t, a.close())
	header, err := tar.NewReader(&out).Next()
	require.NoError(t, err)
	assert.Equal(t, "entrypoint", header.Name)
	assert.Equal(t, int64(0o755), header.Mode)
}

// A build cache is removed only if it is larger than the limit. A missing cache is not an error.
func TestOnlyAnOversizedBuildCacheIsRemoved(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "cache")
	require.NoError(t, removeOversizedFolder(folder, 10))
	require.NoError(t, os.MkdirAll(filepath.Join(folder, "00"), 0o755))
	for _, name := range []string{"a", "00/b"} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), make([]byte, 5), 0o600))
	}
	require.NoError(t, removeOversizedFolder(folder, 10))
	assert.DirExists(t, folder)
	require.NoError(t, removeOversizedFolder(folder, 9))
	assert.NoDirExists(t, folder)
}

// readArchive returns the text of each file and the target of each link in an archive.
func readArchive(t *testing.T, fill func(*archiveWriter) error) map[string]string {
	t.Helper()
	var out bytes.Buffer
	a := newArchiveWriter(&out)
	require.NoError(t, fill(a))
	require.NoError(t, a.close())
	found := map[string]string{}
	for reader := tar.NewReader(&out); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		require.NoError(t, err)
		text, err := io.ReadAll(reader)
		require.NoError(t, err)
		found[header.Name] = string(text)
		if header.Linkname != "" {
			found[header.Name] = "-> " + header.Linkname
		}
	}
}
