//go:build integration

package compose

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millwright/devstack/build"
	"millwright/devstack/engine"
	"millwright/devstack/engine/standin"
)

func TestDbg(t *testing.T) {
	repo, err := build.FindRepo("")
	require.NoError(t, err)
	h := &host{repo: repo}
	h.engine, err = engine.Start(t.Context(), t.TempDir(), engine.Options{Output: os.Stderr, Shown: []string{repo}})
	require.NoError(t, err)
	t.Cleanup(func() { h.logContainers(t); h.engine.Stop(t.Context()) })
	image := map[string]string{}
	for name, s := range h.config(t).Services {
		image[name] = s.Image
	}
	compiler, err := standin.Prepare(t.Context(), os.Stderr, standin.Program{Module: repo, Packages: compiled(t, "Dockerfile")})
	require.NoError(t, err)
	require.NoError(t, standin.Golang(t.Context(), h.engine, "golang:1.26.8", compiler, os.Stderr))
	require.NoError(t, standin.Postgres(t.Context(), h.engine, image["postgres"], os.Stderr))
	require.NoError(t, standin.Temporal(t.Context(), h.engine, h.repo, standin.TemporalNames{
		Server: image["temporal"], AdminTools: image["schema"], UI: image["ui"],
	}, os.Stderr))
	t.Log(h.compose(t, "up", "--detach", "bootstrap", "ui"))
	time.Sleep(5 * time.Second)
	t.Log(h.containers(t))
	t.Log(h.get(t, "http://127.0.0.1:8233/api/v1/namespaces/millwright"))
}
