package kubecli_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"millwright/api/v1alpha1"
	"millwright/decide/request"
	"millwright/starter/clitest"
	"millwright/starter/explain"
	"millwright/starter/kubecli"
	"millwright/starter/rollout"
)

func TestCompleteObjectNames(t *testing.T) {
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "default", Name: name} }
	w := clitest.NewFakeBackend(
		&v1alpha1.Machine{ObjectMeta: meta("web-1")}, &v1alpha1.Machine{ObjectMeta: meta("db-1")},
		&v1alpha1.MachineDeployment{ObjectMeta: meta("web")}, &v1alpha1.MachineClass{ObjectMeta: meta("small")},
		&v1alpha1.MachineSet{ObjectMeta: meta("web-5f")},
		&v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "web-2"}},
	)
	w.ClusterClient = kubefake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n-1"}})
	offered := func(kind request.Kind, both bool, args []string, typed string) []string {
		o := &kubecli.ObjectFlags{Environment: w.Environment(), Kind: kind}
		c := &cobra.Command{}
		c.SetContext(t.Context())
		complete := o.CompleteName
		if both {
			complete = o.CompleteKindAndName
		}
		names, _ := complete(c, args, typed)
		return names
	}
	assert.Equal(t, []string{"web-1"}, offered(request.KindMachine, false, nil, "w"))
	assert.Equal(
		t,
		[]string{"db-1", "web-1"},
		offered(request.KindMachine, false, nil, ""),
		"of other namespaces nothing, as there is one here",
	)
	assert.Equal(t, []string{"other/web-2"}, offered(request.KindMachine, false, nil, "o"))
	assert.Equal(t, []string{"other/web-2"}, offered(request.KindMachine, false, nil, "other/"))
	assert.Empty(t, offered(request.KindMachine, false, nil, "third/"))
	assert.Equal(t, []string{"web"}, offered(request.KindMachineDeployment, false, nil, ""))
	assert.Equal(t, []string{"small"}, offered(kubecli.KindClass, false, nil, ""))
	assert.Empty(t, offered(request.KindMachine, false, []string{"web-1"}, ""), "there is one name")
	assert.Equal(t, []string{"web-1"}, offered(request.KindMachine, false, []string{"mc"}, "w"), "after the kind")
	assert.Empty(t, offered(request.KindMachine, false, []string{"mcd"}, "w"), "another kind")
	assert.Equal(t, []string{"web-5f"}, offered("object", true, []string{"mcs"}, ""))
	assert.Empty(t, offered("object", true, []string{"web"}, ""), "this is no kind")
	assert.Equal(t, []string{"machine/db-1", "machine/web-1"}, offered("object", true, nil, "machine/"))
	assert.Contains(t, offered("object", true, nil, ""), "machinedeployment/")
	assert.Contains(t, offered("object", true, nil, ""), "web", "a deployment without its kind")
	assert.NotContains(
		t,
		offered("object", true, nil, ""),
		"web-1",
		"before anything is typed, a cluster has too many machines",
	)
	assert.Equal(t, []string{"mcd/web"}, offered("object", true, nil, "mcd/w"), "the short name that was typed stays")
	assert.Equal(t, []string{"mcs/web-5f"}, offered("object", true, nil, "mcs/"))
	assert.Equal(
		t,
		[]string{"web", "web-5f", "web-1"},
		offered("object", true, nil, "we"),
		"names without a kind, in the order in which they are looked for",
	)
	assert.Equal(t, []string{"other/web-2"}, offered("object", true, nil, "other/w"))
	assert.Equal(t, []string{"mc/other/web-2"}, offered("object", true, nil, "mc/other/"))
	assert.Equal(t, []string{"node/n-1"}, offered("object", true, nil, "node/"))
	assert.Empty(t, offered("object", true, nil, "pod/"))

	o := &kubecli.ObjectFlags{Kind: request.KindMachine, Environment: kubecli.Environment{
		NewClients: func(kubecli.ClusterAccess) (kubecli.Clients, error) {
			return kubecli.Clients{}, errors.New("no kubeconfig")
		},
	}}
	names, _ := o.CompleteName(&cobra.Command{}, nil, "")
	assert.Empty(t, names)
}

// completionsOfWords returns the completions of these words and cobra's directive, as the shell gets them.
func completionsOfWords(
	t *testing.T,
	w *clitest.FakeBackend,
	c *cobra.Command,
	words ...string,
) (offered []string, directive string) {
	t.Helper()
	out, err := w.Run(t.Context(), c, append([]string{cobra.ShellCompNoDescRequestCmd}, words...)...)
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return lines[:len(lines)-1], lines[len(lines)-1]
}

// A shell completes the arguments and flags of a whole command.
func TestShellCompletion(t *testing.T) {
	w := clitest.NewFakeBackend(
		&v1alpha1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}},
		&v1alpha1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "store", Name: "db"}},
	)
	namespace := func(name string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	w.ClusterClient = kubefake.NewClientset(namespace("shop"), namespace("store"), namespace("kube-system"))
	noSpace := fmt.Sprintf(":%d", cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace)
	for name, row := range map[string]struct {
		of     func(kubecli.Environment) *cobra.Command
		words  []string
		offers []string
		space  bool // the shell adds a space after the word
	}{
		"a namespace":                       {rollout.Command, []string{"watch", "-n", "s"}, []string{"shop", "store"}, true},
		"a namespace of explain":            {explain.Command, []string{"--namespace", ""}, []string{"kube-system", "shop", "store"}, true},
		"a deployment of a namespace":       {rollout.Command, []string{"watch", "shop/"}, []string{"shop/web"}, true},
		"a part of a namespace":             {rollout.Command, []string{"pause", "s"}, []string{"shop/web", "store/db"}, true},
		"nothing typed, and none is here":   {rollout.Command, []string{"status", ""}, []string{"shop/web", "store/db"}, true},
		"a flag says which namespace":       {rollout.Command, []string{"status", "-n", "store", ""}, []string{"db"}, true},
		"another one than that of the flag": {rollout.Command, []string{"status", "-n", "store", "s"}, nil, true},
		"a name without a kind":             {explain.Command, []string{"-n", "shop", "w"}, []string{"web"}, true},
		"a kind":                            {explain.UICommand, []string{"-n", "shop", "machined"}, []string{"machinedeployment/"}, false},
		"a format":                          {explain.TopCommand, []string{"-o", ""}, []string{"table", "wide", "json", "yaml", "name"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			offered, directive := completionsOfWords(t, w, row.of(w.Environment()), row.words...)
			assert.ElementsMatch(t, row.offers, offered)
			assert.Equal(t, !row.space, directive == noSpace, directive)
		})
	}
	t.Run("nobody may list namespaces", func(t *testing.T) {
		kube := kubefake.NewClientset()
		kube.PrependReactor(
			"list",
			"namespaces",
			func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("forbidden") },
		)
		w.ClusterClient = kube
		offered, _ := completionsOfWords(t, w, rollout.Command(w.Environment()), "watch", "-n", "")
		assert.Equal(t, []string{"shop", "store"}, offered)
	})
}
