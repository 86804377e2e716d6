//go:build integration

package libvirt_test

import (
	"context"
	"html"
	"path/filepath"
	"sync"
	"testing"

	client "github.com/digitalocean/go-libvirt"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	libvirt "millwright/examples/provider-libvirt"
	"millwright/provider"
	"millwright/provider/driver"
)

var machine = provider.Machine{
	Cluster:   "c",
	Namespace: "shop",
	Name:      "m-1",
	UID:       "4c2b6a1e-0000-4000-8000-000000000001",
}

// ours returns the domains but the one that the mock always has.
func (c cloud) ours(t *testing.T) []client.Domain {
	t.Helper()
	all, _, err := c.ConnectListAllDomains(1, 0)
	require.NoError(t, err)
	var ours []client.Domain
	for _, d := range all {
		if d.Name != "test" {
			ours = append(ours, d)
		}
	}
	require.Len(t, ours, len(all)-1)
	return ours
}

// Without the search of package driver: libvirt alone sees to it that there is one domain.
func TestOneTokenMakesOneDomain(t *testing.T) {
	c := newCloud(t)
	const requests = 8
	ids := make([]string, requests)
	var work sync.WaitGroup
	for i := range requests {
		work.Go(func() {
			made, err := libvirt.Driver{}.Create(t.Context(), c.Class, machine, driver.Request{Token: "c/u"})
			assert.NoError(t, err)
			ids[i] = made.ProviderID
		})
	}
	work.Wait()
	ours := c.ours(t)
	require.Len(t, ours, 1)
	for _, id := range ids {
		assert.Equal(t, "libvirt:///"+uuid.UUID(ours[0].UUID).String(), id)
	}
}

// The connection breaks after the daemon got the request: nobody knows whether there is a domain, until the next call.
func TestALostAnswerIsUnknownAndTheNextCallAdopts(t *testing.T) {
	c := newCloud(t)
	c.between.lose(provider.MethodCreateInstance)
	_, err := c.Provider.CreateInstance(t.Context(), c.Class, machine)
	assert.Equal(t, provider.Unavailable, provider.CodeOf(err), err)
	made, err := c.Provider.CreateInstance(t.Context(), c.Class, machine)
	require.NoError(t, err)
	ours := c.ours(t)
	require.Len(t, ours, 1)
	assert.Equal(t, "libvirt:///"+uuid.UUID(ours[0].UUID).String(), made.ProviderID)
}

// People's domains are not ours, and one of ours that a person has made persistent is deleted completely.
func TestDeletionLeavesNothingOfOursAndEverythingElse(t *testing.T) {
	c := newCloud(t)
	c.Class.Spec = []byte("{}") // whatever happened to the class
	id := uuid.New()
	persistent, err := c.DomainDefineXML(planted(machine, id))
	require.NoError(t, err)
	require.NoError(t, c.DomainCreate(persistent))
	require.NoError(t, c.Provider.DeleteInstance(t.Context(), c.Class, machine))
	assert.Empty(t, c.ours(t))

	stopped, err := c.DomainDefineXML(planted(machine, id))
	require.NoError(t, err)
	require.Equal(t, id, uuid.UUID(stopped.UUID))
	require.NoError(t, c.Provider.DeleteInstance(t.Context(), c.Class, machine))
	assert.Empty(t, c.ours(t))
}

func TestUserDataReachTheDomain(t *testing.T) {
	c := newCloud(t)
	c.Class.Spec = []byte(
		`{"type": "test", "definition": "<memory>65536</memory><os><type>hvm</type></os>", "userDataEntry": "opt/user-data"}`,
	)
	c.Class.Secret["userData"] = []byte("#cloud-config\nname: \"a & b\"\n")
	_, err := c.Provider.CreateInstance(t.Context(), c.Class, machine)
	require.NoError(t, err)
	text, err := c.DomainGetXMLDesc(c.ours(t)[0], 0)
	require.NoError(t, err)
	assert.Contains(t, html.UnescapeString(text), "#cloud-config\nname: \"a & b\"\n")
	assert.Contains(t, text, "<title>m-1</title>")
}

func TestADefinitionThatLibvirtRefuses(t *testing.T) {
	c := newCloud(t)
	c.Class.Spec = []byte(`{"type": "test", "definition": "<memory>much</memory>"}`)
	_, err := c.Provider.CreateInstance(t.Context(), c.Class, machine)
	assert.Equal(t, provider.InvalidArgument, provider.CodeOf(err), err)
	assert.Empty(t, c.ours(t))
}

func TestADaemonThatIsNotThere(t *testing.T) {
	absent := provider.Class{Secret: provider.Secret{"socket": []byte(filepath.Join(t.TempDir(), "none"))}}
	_, err := libvirt.New().InstanceStatus(context.Background(), absent, machine)
	assert.Equal(t, provider.Unavailable, provider.CodeOf(err), err)
	_, err = libvirt.New().InstanceStatus(context.Background(), provider.Class{}, machine)
	assert.Equal(t, provider.Unauthenticated, provider.CodeOf(err), err)
}
