package parts

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/devstack/component"
	"millwright/devstack/lab/incus"
)

// The control plane's flags for real machines come before the flags of the stack's options.
func TestFlagsOfRealMachinesComeBeforeTheOptionsFlags(t *testing.T) {
	ports, err := component.StandardPorts(nil, extraComponents()...)
	require.NoError(t, err)
	plan := component.Plan{
		Dir: t.TempDir(), Repo: "/clone", ExtraComponents: extraComponents(), Ports: ports,
		Args: map[string][]string{component.APIServer: {"--of-options"}},
	}
	require.NoError(t, addRealMachineSettings(&plan, incus.Networks()[0]))
	server := plan.ComponentArguments(component.APIServer)
	assert.Contains(t, server, "--enable-bootstrap-token-auth")
	assert.Equal(t, "--of-options", server[len(server)-1])
	assert.Contains(t, plan.ComponentArguments(component.ControllerManager), "--cluster-cidr=10.200.128.0/17")
	assert.Equal(t, []string{"/clone/devstack/lab/nodes/rbac"}, plan.ManifestFolders)
	daemon := plan.ComponentArguments(Incusd)
	assert.Equal(t, "incusd", daemon[0])
	assert.Contains(t, daemon, "127.0.0.1:16495", "the first of the extras")
	worker := strings.Join(plan.ComponentArguments(IncusWorker), " ")
	assert.Contains(t, worker, "/kubeconfig/millwright-provider.kubeconfig")
	assert.Contains(t, worker, "--metrics-address 127.0.0.1:16496")
}

func TestExtraComponentsDoNotExceedTheReservedPorts(t *testing.T) {
	assert.LessOrEqual(t, len(extraComponents()), component.MaxExtraComponents)
}
