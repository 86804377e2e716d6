package nodes

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
)

// A request is approved only if it has the kubelet's own name and addresses of the kubelet's machine.
func TestOnlyCertificatesForOwnNamesAndAddressesAreApproved(t *testing.T) {
	tests := map[string]struct {
		change  func(*certificatesv1.CertificateSigningRequest, *x509.CertificateRequest)
		refused string
	}{
		"its own": {change: func(*certificatesv1.CertificateSigningRequest, *x509.CertificateRequest) {}},
		"another machine's address": {
			refused: "it asks for 10.200.0.99",
			change: func(_ *certificatesv1.CertificateSigningRequest, c *x509.CertificateRequest) {
				c.IPAddresses = append(c.IPAddresses, net.ParseIP("10.200.0.99"))
			},
		},
		"another name": {
			refused: "it asks for kubernetes",
			change: func(_ *certificatesv1.CertificateSigningRequest, c *x509.CertificateRequest) {
				c.DNSNames = []string{"kubernetes"}
			},
		},
		"no name": {
			refused: "names and addresses",
			change: func(_ *certificatesv1.CertificateSigningRequest, c *x509.CertificateRequest) {
				c.DNSNames, c.IPAddresses = nil, nil
			},
		},
		"an e-mail address": {
			refused: "names and addresses",
			change: func(_ *certificatesv1.CertificateSigningRequest, c *x509.CertificateRequest) {
				c.EmailAddresses = []string{"m-1@example.com"}
			},
		},
		"the subject of another": {
			refused: "certificate of another",
			change: func(_ *certificatesv1.CertificateSigningRequest, c *x509.CertificateRequest) {
				c.Subject.CommonName = "system:node:m-2"
			},
		},
		"a subject in another group": {
			refused: "certificate of another",
			change: func(_ *certificatesv1.CertificateSigningRequest, c *x509.CertificateRequest) {
				c.Subject.Organization = []string{"system:masters"}
			},
		},
		"use as a client": {
			refused: "client auth",
			change: func(r *certificatesv1.CertificateSigningRequest, _ *x509.CertificateRequest) {
				r.Spec.Usages = append(r.Spec.Usages, certificatesv1.UsageClientAuth)
			},
		},
		"not a kubelet": {
			refused: "not a kubelet",
			change: func(r *certificatesv1.CertificateSigningRequest, _ *x509.CertificateRequest) {
				r.Spec.Username = "admin"
			},
		},
		"a name without the group": {
			refused: "not a kubelet",
			change: func(r *certificatesv1.CertificateSigningRequest, _ *x509.CertificateRequest) {
				r.Spec.Groups = nil
			},
		},
		"a machine without a Node": {
			refused: "not found",
			change: func(r *certificatesv1.CertificateSigningRequest, c *x509.CertificateRequest) {
				r.Spec.Username, c.Subject.CommonName = "system:node:m-9", "system:node:m-9"
			},
		},
		"a simulated machine": {
			refused: "not a machine of Incus",
			change: func(r *certificatesv1.CertificateSigningRequest, c *x509.CertificateRequest) {
				r.Spec.Username, c.Subject.CommonName = "system:node:virtual", "system:node:virtual"
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			request := &certificatesv1.CertificateSigningRequest{
				ObjectMeta: metav1.ObjectMeta{Name: "csr"},
				Spec: certificatesv1.CertificateSigningRequestSpec{
					SignerName: certificatesv1.KubeletServingSignerName, Username: "system:node:m-1", Groups: []string{"system:nodes"},
					Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
				},
			}
			content := &x509.CertificateRequest{
				Subject:  pkix.Name{CommonName: "system:node:m-1", Organization: []string{"system:nodes"}},
				DNSNames: []string{"m-1"}, IPAddresses: []net.IP{net.ParseIP("10.200.0.10")},
			}
			test.change(request, content)
			request.Spec.Request = newCertificateRequestPEM(t, content)

			clients := fake.NewClientset(
				request,
				newNode("m-1", "incus:///default/m-1"),
				newNode("virtual", "virtual:///eu-1/i-1"),
			)
			a := approver{clients, func(_ context.Context, name string) ([]string, error) {
				return map[string][]string{"m-1": {"10.200.0.10"}}[name], nil
			}}
			err := a.approveRequest(t.Context(), request.DeepCopy())
			after, getErr := clients.CertificatesV1().CertificateSigningRequests().Get(t.Context(), "csr", metav1.GetOptions{})
			require.NoError(t, getErr)
			if test.refused != "" {
				require.ErrorContains(t, err, test.refused)
				assert.Empty(t, after.Status.Conditions)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, certificatesv1.CertificateApproved, after.Status.Conditions[0].Type)
		})
	}
}

// A request that is not approved yet does not delay other requests, even if Incus needs seconds for each answer.
func TestPendingSigningRequestsDelayNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clients := fake.NewClientset()
		for _, name := range []string{"early-1", "early-2", "early-3"} { // the machines of these nodes have no address
			createNodeAndSigningRequest(t, clients, name)
		}
		a := approver{clients, func(_ context.Context, name string) ([]string, error) {
			time.Sleep(2 * time.Second)
			return map[string][]string{"m-1": {"10.200.0.10"}}[name], nil
		}}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- a.run(ctx) }()
		time.Sleep(10 * time.Minute)
		createNodeAndSigningRequest(t, clients, "m-1")
		time.Sleep(30 * time.Second)
		after, err := clients.CertificatesV1().CertificateSigningRequests().Get(t.Context(), "m-1", metav1.GetOptions{})
		require.NoError(t, err)
		assert.NotEmpty(t, after.Status.Conditions)
		cancel()
		require.NoError(t, <-ended)
	})
}

// createNodeAndSigningRequest creates a node and the request of its kubelet.
func createNodeAndSigningRequest(t *testing.T, clients kubernetes.Interface, name string) {
	t.Helper()
	node := newNode(name, "incus:///default/"+name)
	_, err := clients.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
	require.NoError(t, err)
	user := "system:node:" + name
	request := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			SignerName: certificatesv1.KubeletServingSignerName, Username: user, Groups: []string{"system:nodes"},
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageServerAuth},
			Request: newCertificateRequestPEM(t, &x509.CertificateRequest{
				Subject:  pkix.Name{CommonName: user, Organization: []string{"system:nodes"}},
				DNSNames: []string{name}, IPAddresses: []net.IP{net.ParseIP("10.200.0.10")},
			}),
		},
	}
	_, err = clients.CertificatesV1().CertificateSigningRequests().Create(t.Context(), request, metav1.CreateOptions{})
	require.NoError(t, err)
}

// newCertificateRequestPEM returns a certificate request in PEM form.
func newCertificateRequestPEM(t *testing.T, content *x509.CertificateRequest) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	signed, err := x509.CreateCertificateRequest(rand.Reader, content, key)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: signed})
}

func newNode(name, providerID string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: providerID}}
}
