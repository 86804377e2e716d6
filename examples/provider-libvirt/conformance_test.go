//go:build integration

package libvirt_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	client "github.com/digitalocean/go-libvirt"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	libvirt "millwright/examples/provider-libvirt"
	"millwright/provider"
	"millwright/provider/conformance"
	"millwright/provider/driver"
)

func TestConformance(t *testing.T) {
	conformance.Run(t, conformance.Harness{New: func(t *testing.T) conformance.Cloud { return newCloud(t).Cloud }})
}

// numbers are the codes that an answer of libvirt can carry.
var numbers = map[provider.Code]client.ErrorNumber{
	provider.Unknown:           client.ErrHookScriptFailed,
	provider.InvalidArgument:   client.ErrXMLError,
	provider.DeadlineExceeded:  client.ErrOperationTimeout,
	provider.NotFound:          client.ErrNoDomain,
	provider.PermissionDenied:  client.ErrAccessDenied,
	provider.ResourceExhausted: client.ErrNoMemory,
	provider.Aborted:           client.ErrResourceBusy,
	provider.Unimplemented:     client.ErrNoSupport,
	provider.Internal:          client.ErrInternalError,
	provider.Unavailable:       client.ErrRPC,
	provider.Unauthenticated:   client.ErrAuthFailed,
}

// cloud is a libvirtd of one test, with the connection of a person, and what is between it and the provider.
type cloud struct {
	conformance.Cloud
	*client.Libvirt
	between *proxy
}

func newCloud(t *testing.T) cloud {
	socket := startDaemon(t, "none")
	person := connect(t, socket)
	between := newProxy(t, socket)
	spec, err := json.Marshal(
		libvirt.Spec{Type: "test", Definition: "<memory unit='MiB'>64</memory><os><type>hvm</type></os>"},
	)
	require.NoError(t, err)
	class := func(socket string) provider.Class {
		return provider.Class{
			Namespace: "shop",
			Name:      "small",
			Spec:      spec,
			Secret:    provider.Secret{"socket": []byte(socket), "uri": []byte(uri)},
		}
	}
	denied := class(startDaemon(t, "sasl")) // the driver has no password
	return cloud{Libvirt: person, between: between, Cloud: conformance.Cloud{
		Provider: libvirt.New(driver.WithRequestLife(100*time.Millisecond), driver.WithSearchInterval(20*time.Millisecond)),
		Class:    class(between.socket),
		Denied:   &denied,
		Fail: func(method provider.Method, err *provider.Error) {
			between.fail(method, numbers[err.Code], err.Message)
		},
		Codes:    slices.Sorted(maps.Keys(numbers)),
		Timeless: true,
		Hang:     between.hang,
		CreateByHand: func(m provider.Machine) {
			id := uuid.New()
			_, err := person.DomainCreateXML(planted(m, id), 0)
			require.NoError(t, err)
		},
	}}
}

// planted is a domain as another program would make it.
func planted(m provider.Machine, id uuid.UUID) string {
	tags := fmt.Sprintf("cluster='%s' class='shop/small' name='%s'", m.Cluster, m.Name)
	if m.UID != "" {
		tags += fmt.Sprintf(" uid='%s'", m.UID)
	}
	return fmt.Sprintf(
		`<domain type='test'><name>planted-%s</name><uuid>%s</uuid><memory unit='MiB'>64</memory><os><type>hvm</type></os>
		<metadata><machine xmlns='urn:millwright:machine' %s/></metadata></domain>`,
		id,
		id,
		tags,
	)
}
