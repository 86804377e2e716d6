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
	conformance.Run(
		t,
		conformance.Harness{NewCloud: func(t *testing.T) conformance.Cloud { return newTestCloud(t).Cloud }},
	)
}

// errorNumbersByCode are libvirt's error numbers by the code to which the driver maps them.
var errorNumbersByCode = map[provider.Code]client.ErrorNumber{
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

// testCloud is the libvirtd of one test, with a direct connection for the test and a proxy for the provider.
type testCloud struct {
	conformance.Cloud
	*client.Libvirt
	proxy *proxy
}

func newTestCloud(t *testing.T) testCloud {
	socket := startDaemon(t, "none")
	person := connectToDaemon(t, socket)
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
			Secret:    provider.Secret{"socket": []byte(socket), "uri": []byte(mockURI)},
		}
	}
	denied := class(startDaemon(t, "sasl")) // this daemon requires a password, which the driver does not have
	return testCloud{Libvirt: person, proxy: between, Cloud: conformance.Cloud{
		Provider: libvirt.New(
			driver.WithRequestLifetime(100*time.Millisecond),
			driver.WithSearchInterval(20*time.Millisecond),
		),
		Class:       class(between.socketPath),
		DeniedClass: &denied,
		FailNextCall: func(method provider.Method, err *provider.Error) {
			between.refuseNextRequest(method, errorNumbersByCode[err.Code], err.Message)
		},
		SupportedCodes:   slices.Sorted(maps.Keys(errorNumbersByCode)),
		LacksRetryDelays: true,
		BlockCalls:       between.hangRequests,
		CreateInstanceByHand: func(m provider.Machine) {
			id := uuid.New()
			_, err := person.DomainCreateXML(foreignDomainXML(m, id), 0)
			require.NoError(t, err)
		},
	}}
}

// foreignDomainXML returns the XML of a domain that another program has created with Millwright's tags.
func foreignDomainXML(m provider.Machine, id uuid.UUID) string {
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
