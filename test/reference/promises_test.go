package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// currentPromisedNames builds the programs once for all tests.
var currentPromisedNames = sync.OnceValues(
	func() ([]string, error) { return promisedNames(context.Background(), "../..") },
)

// No name that a version promises is removed or renamed. docs/changelog.md defines the promise, and how a promised name
// is removed.
func TestPromisedNamesStay(t *testing.T) {
	today, err := currentPromisedNames()
	require.NoError(t, err)
	lists, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.Contains(t, lists, "testdata/v0.1.txt")
	for _, list := range lists {
		text, err := os.ReadFile(list)
		require.NoError(t, err)
		assert.Empty(
			t,
			missingLines(string(text), today),
			"%s promises these names, and they are gone or are called otherwise: see docs/changelog.md",
			list,
		)
	}
}

// The list has names of each kind. Without this test, names would be missing in the list if the format of a page
// changed.
func TestPromisedNamesContainEachKind(t *testing.T) {
	today, err := currentPromisedNames()
	require.NoError(t, err)
	wanted := []string{
		"command millwright drain extend",
		"flag millwright drain extend --for string",
		"flag millwright drain extend --temporal-tls bool",
		"flag millwright top --all-namespaces bool",
		"flag worker --adopt-before-create bool",
		"flag worker --max-drains int",
		"flag k8sbridge --cluster-name string",
		"exit code of millwright after wrong call: 2",
		"metric mcm_machine_current_status_phase gauge {name, namespace}",
		"metric millwright_bridge_leader gauge {}",
		"search attribute Stuck Bool",
		"update request of ClusterAPIRollout",
		"query pods of Drain",
		"request hold for a machine",
		"request hold for a machine with inAdvance",
		"request undo for a deployment needs no reason",
		"request field reason",
		"activity of a provider CreateInstance",
		"field of a provider's calls InstanceCall.ProviderID",
		"word of conditions ReplacementHeld",
		"word of reasons SecretNotFound",
		"word of steps create-instance",
		"key or value drain.machine.sapcloud.io/hold",
		"key or value node.machine.sapcloud.io/preserve",
		"resource machines.machine.sapcloud.io/v1alpha1 is Namespaced",
		"resource machines.machine.sapcloud.io/v1alpha1 is called mc",
		"resource machinesets.machine.sapcloud.io/v1alpha1 has the subresource scale",
		"field machines.machine.sapcloud.io/v1alpha1 .spec.class.name: string",
		"field machinedeployments.machine.sapcloud.io/v1alpha1 .spec.strategy.rollingUpdate.maxSurge: integer or string",
		"field machinedeployments.machine.sapcloud.io/v1alpha1 .spec.paused may be left out",
	}
	assert.Empty(t, missingLines(strings.Join(wanted, "\n"), today))
	for _, name := range today {
		assert.NotRegexp(t, "^(flag|command) devstack|--help", name, "devstack is a tool of developers")
	}
}

// runGit runs git in a clone, with a placeholder as the user's name and address.
func runGit(t *testing.T, repo string, arguments ...string) {
	t.Helper()
	all := append(
		[]string{
			"-C",
			repo,
			"-c",
			"user.name=n",
			"-c",
			"user.email=e",
			"-c",
			"tag.gpgSign=false",
			"-c",
			"commit.gpgSign=false",
		},
		arguments...)
	out, err := exec.CommandContext(t.Context(), "git", all...).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// The lists of names and of recorded histories still have all lines of the released versions. A version is released if
// the clone has its tag. Before the first tag, nothing is released.
func TestReleasedNamesAreStillPromised(t *testing.T) {
	tags, err := versionTags(t.Context(), "../..")
	require.NoError(t, err)
	for _, tag := range tags {
		broken, err := promisesBrokenSinceTag(t.Context(), "../..", tag)
		require.NoError(t, err)
		assert.Empty(t, broken, "released with %s", tag)
	}
}

func TestPromisesBrokenSinceTagListsRemovedLines(t *testing.T) {
	repo := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		require.NoError(t, writePage(filepath.Join(repo, filepath.FromSlash(name)), text))
	}
	runGit(t, repo, "init", "-q")
	write("test/reference/testdata/v0.1.txt", "flag a\nflag b\n")
	write("workflows/testdata/replay/v0.1.sum", "1  v0.1/drain/blocked.json.gz\n")
	runGit(t, repo, "add", ".")
	runGit(t, repo, "commit", "-q", "-m", "one")
	runGit(t, repo, "tag", "v0.1.0")
	broken, err := promisesBrokenSinceTag(t.Context(), repo, "v0.1.0")
	require.NoError(t, err)
	require.Empty(t, broken)
	write("test/reference/testdata/v0.1.txt", "flag b\nflag c\n")
	require.NoError(t, os.Remove(filepath.Join(repo, "workflows", "testdata", "replay", "v0.1.sum")))
	broken, err = promisesBrokenSinceTag(t.Context(), repo, "v0.1.0")
	require.NoError(t, err)
	require.Equal(
		t,
		[]string{
			"test/reference/testdata/v0.1.txt: flag a",
			"workflows/testdata/replay/v0.1.sum: 1  v0.1/drain/blocked.json.gz",
		},
		broken,
	)

	require.ErrorContains(t, writePromisedNames(t.Context(), repo, "v0.1"), "v0.1 is released as v0.1.0")
	runGit(t, repo, "checkout", "-q", "-b", "elsewhere")
	runGit(t, repo, "commit", "-q", "--allow-empty", "-m", "two")
	runGit(t, repo, "tag", "v0.2.0")
	runGit(t, repo, "checkout", "-q", "-")
	tags, err := versionTags(t.Context(), repo)
	require.NoError(t, err)
	require.Equal(t, []string{"v0.1.0"}, tags, "v0.2 is of another branch")
}

func TestReleaseTagOfVersion(t *testing.T) {
	for tag, released := range map[string]bool{"v0.1": true, "v0.1.0": true, "v0.1.2": true, "v0.1-rc.1": true, "v0.10.0": false, "v0.2.0": false} {
		assert.Equal(t, released, releaseTagOfVersion("v0.1", []string{tag}) != "", tag)
	}
}

func TestPromisedCRDNames(t *testing.T) {
	path := filepath.Join(t.TempDir(), "crd.yaml")
	require.NoError(t, os.WriteFile(path, []byte(`
metadata: {name: things.example.com}
spec:
  scope: Namespaced
  names: {shortNames: [th]}
  versions:
  - name: v1
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: [kind]
            properties:
              kind: {type: string, enum: [A, B]}
              size: {x-kubernetes-int-or-string: true}
              list: {type: array, items: {type: string}}
              map: {type: object, additionalProperties: {type: integer}}
`), 0o600))
	names, err := promisedCRDNames(path)
	require.NoError(t, err)
	of := "field things.example.com/v1 "
	assert.ElementsMatch(t, []string{
		"resource things.example.com/v1 is Namespaced",
		"resource things.example.com/v1 is called th",
		"resource things.example.com/v1 has the subresource status",
		of + ".spec: object",
		of + ".spec may be left out",
		of + ".spec.kind: string",
		of + ".spec.kind may be A",
		of + ".spec.kind may be B",
		of + ".spec.size: integer or string",
		of + ".spec.size may be left out",
		of + ".spec.list: array",
		of + ".spec.list may be left out",
		of + ".spec.list[]: string",
		of + ".spec.map: object",
		of + ".spec.map may be left out",
		of + ".spec.map{}: integer",
	}, names)
}
