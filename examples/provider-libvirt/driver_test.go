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

var testMachine = provider.Machine{
	Cluster:   "c",
	Namespace: "shop",
	Name:      "m-1",
	UID:       "4c2b6a1e-0000-4000-8000-000000000001",
}

// millwrightDomains returns all domains except the domain "test", which libvirt's mock always has.
func (c testCloud) millwrightDomains(t *testing.T) []client.Domain {
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

// Even without the search in package driver, libvirt makes only one domain from all create requests with the same
// token.
func TestRequestsWithTheSameTokenCreateOneDomain(t *testing.T) {
	c := newTestCloud(t)
	const requests = 8
	ids := make([]string, requests)
	var work sync.WaitGroup
	for i := range requests {
		work.Go(func() {
			made, err := libvirt.Driver{}.Create(t.Context(), c.Class, testMachine, driver.CreateRequest{Token: "c/u"})
			assert.NoError(t, err)
			ids[i] = made.ProviderID
		})
	}
	work.Wait()
	ours := c.millwrightDomains(t)
	require.Len(t, ours, 1)
	for _, id := range ids {
		assert.Equal(t, "libvirt:///"+uuid.UUID(ours[0].UUID).String(), id)
	}
}

// The connection breaks after the daemon has received the create request. The next call adopts the domain.
func TestCreateAfterALostAnswerAdoptsTheDomain(t *testing.T) {
	c := newTestCloud(t)
	c.proxy.loseNextAnswer(provider.MethodCreateInstance)
	_, err := c.Provider.CreateInstance(t.Context(), c.Class, testMachine)
	assert.Equal(t, provider.Unavailable, provider.CodeOfError(err), err)
	made, err := c.Provider.CreateInstance(t.Context(), c.Class, testMachine)
	require.NoError(t, err)
	ours := c.millwrightDomains(t)
	require.Len(t, ours, 1)
	assert.Equal(t, "libvirt:///"+uuid.UUID(ours[0].UUID).String(), made.ProviderID)
}

// DeleteInstance deletes a domain of Millwright completely, even if a person has made the domain persistent, and
// deletes no other domain.
func TestDeletionDeletesOnlyTheMachinesDomain(t *testing.T) {
	c := newTestCloud(t)
	c.Class.Spec = []byte("{}") // a deletion needs no valid spec
	id := uuid.New()
	persistent, err := c.DomainDefineXML(foreignDomainXML(testMachine, id))
	require.NoError(t, err)
	require.NoError(t, c.DomainCreate(persistent))
	require.NoError(t, c.Provider.DeleteInstance(t.Context(), c.Class, testMachine))
	assert.Empty(t, c.millwrightDomains(t))

	stopped, err := c.DomainDefineXML(foreignDomainXML(testMachine, id))
	require.NoError(t, err)
	require.Equal(t, id, uuid.UUID(stopped.UUID))
	require.NoError(t, c.Provider.DeleteInstance(t.Context(), c.Class, testMachine))
	assert.Empty(t, c.millwrightDomains(t))
}

func TestUserDataReachTheDomain(t *testing.T) {
	c := newTestCloud(t)
	c.Class.Spec = []byte(
		`{"type": "test", "definition": "<memory>65536</memory><os><type>hvm</type></os>", "userDataEntry": "opt/user-data"}`,
	)
	c.Class.Secret["userData"] = []byte("#cloud-config\nname: \"a & b\"\n")
	_, err := c.Provider.CreateInstance(t.Context(), c.Class, testMachine)
	require.NoError(t, err)
	text, err := c.DomainGetXMLDesc(c.millwrightDomains(t)[0], 0)
	require.NoError(t, err)
	assert.Contains(t, html.UnescapeString(text), "#cloud-config\nname: \"a & b\"\n")
	assert.Contains(t, text, "<title>m-1</title>")
}

func TestDefinitionRefusedByLibvirtIsInvalidArgument(t *testing.T) {
	c := newTestCloud(t)
	c.Class.Spec = []byte(`{"type": "test", "definition": "<memory>much</memory>"}`)
	_, err := c.Provider.CreateInstance(t.Context(), c.Class, testMachine)
	assert.Equal(t, provider.InvalidArgument, provider.CodeOfError(err), err)
	assert.Empty(t, c.millwrightDomains(t))
}

func TestUnreachableDaemonIsUnavailable(t *testing.T) {
	absent := provider.Class{Secret: provider.Secret{"socket": []byte(filepath.Join(t.TempDir(), "none"))}}
	_, err := libvirt.New().InstanceStatus(context.Background(), absent, testMachine)
	assert.Equal(t, provider.Unavailable, provider.CodeOfError(err), err)
	_, err = libvirt.New().InstanceStatus(context.Background(), provider.Class{}, testMachine)
	assert.Equal(t, provider.Unauthenticated, provider.CodeOfError(err), err)
}
