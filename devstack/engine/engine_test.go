//go:build integration

package engine_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millwright/devstack/engine"
)

func TestX(t *testing.T) {
	began := time.Now()
	e, err := engine.Start(t.Context(), t.TempDir(), engine.Options{Output: os.Stderr, Shown: []string{"/work/wt-engine"}})
	if err != nil { ms, _ := filepath.Glob("/tmp/TestX*/001/dockerd.log"); for _, m := range ms { b, _ := os.ReadFile(m); t.Log(string(b)) } }; require.NoError(t, err)
	t.Log(time.Since(began))
	t.Cleanup(func() { require.NoError(t, e.Stop(t.Context())) })
	out, err := e.Docker(t.Context(), nil, "info")
	t.Log(string(out), err)
	out, err = e.Docker(t.Context(), nil, "compose", "version")
	t.Log(string(out), err)
	out, err = e.Docker(t.Context(), nil, "buildx", "version")
	t.Log(string(out), err)
	text, _ := os.ReadFile(e.LogPath())
	t.Log(string(text))
}
