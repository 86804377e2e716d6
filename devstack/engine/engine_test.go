//go:build integration

package engine_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millwright/devstack/engine"
	"millwright/devstack/engine/standin"
)

func TestX(t *testing.T) {
	const repo = "/work/wt-engine"
	began := time.Now()
	step := func(what string) { t.Log(what, time.Since(began)); began = time.Now() }
	c, err := standin.Prepare(t.Context(), os.Stderr, standin.Program{Module: repo, Packages: strings.Fields("./worker ./k8sbridge ./starter ./deploy/image/probe")})
	require.NoError(t, err)
	step("prepare")
	e, err := engine.Start(t.Context(), t.TempDir(), engine.Options{Output: os.Stderr, Shown: []string{repo}})
	require.NoError(t, err)
	step("start")
	t.Cleanup(func() { require.NoError(t, e.Stop(t.Context())) })
	require.NoError(t, standin.Golang(t.Context(), e, "golang:1.26.8", c, os.Stderr))
	step("golang")
	out, err := e.Run(t.Context(), nil, nil, "busybox", "sh", "-c", "docker build --progress plain -f "+repo+"/deploy/image/Dockerfile -t millwright:dev "+repo+" 2>&1")
	t.Log(string(out), err)
	step("build")
	require.NoError(t, standin.Postgres(t.Context(), e, "postgres:16", os.Stderr))
	step("postgres")
	out, err = e.Docker(t.Context(), nil, "images")
	t.Log(string(out), err)
	t.Log(e.Log())
}
