package nodes

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

const (
	nodeUserPrefix = "system:node:" // prefix of kubelets' user names
	nodeGroup      = "system:nodes"

	// The approver retries a request after these delays if it did not approve the request, for instance because the
	// Node does not exist yet.
	firstRetryDelay, maxRetryDelay = time.Second, 10 * time.Second
)

// approver approves kubelets' requests for serving certificates. Kubernetes does not approve these requests, because it
// cannot verify the addresses of the machines. The approver gets the addresses from Incus.
type approver struct {
	clientset kubernetes.Interface
	// instanceAddresses returns the addresses of the instances with this name. The result may be empty.
	instanceAddresses func(ctx context.Context, name string) ([]string, error)
}

// run approves requests until ctx ends. A request that is not approved stays pending. Each check of a request sends a
// query to Incus, which takes seconds on a busy machine. The queue therefore contains each request only once, and a
// request that waits for its retry does not delay other requests.
func (a approver) run(ctx context.Context) error {
	factory := informers.NewSharedInformerFactoryWithOptions(
		a.clientset,
		0,
		informers.WithTweakListOptions(func(options *metav1.ListOptions) {
			options.FieldSelector = fields.OneTermEqualSelector(
				"spec.signerName",
				certificatesv1.KubeletServingSignerName,
			).String()
		}),
	)
	requests := factory.Certificates().V1().CertificateSigningRequests()
	queue := workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetryDelay, maxRetryDelay),
	)
	add := func(object any) {
		if request, ok := object.(*certificatesv1.CertificateSigningRequest); ok {
			queue.Add(request.Name)
		}
	}
	_, err := requests.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    add,
		UpdateFunc: func(_, object any) { add(object) },
	})
	if err != nil {
		return fmt.Errorf("watch certificate requests: %w", err)
	}
	factory.StartWithContext(ctx)
	stop := context.AfterFunc(ctx, queue.ShutDown)
	defer stop()
	for {
		name, ended := queue.Get()
		if ended {
			factory.Shutdown()
			return nil
		}
		request, err := requests.Lister().Get(name)
		if err != nil || len(request.Status.Conditions) > 0 { // gone or judged
			queue.Forget(name)
		} else if err := a.approveRequest(ctx, request.DeepCopy()); err != nil {
			slog.Warn("certificate is not approved", "request", name, "user", request.Spec.Username, "reason", err)
			queue.AddRateLimited(name)
		}
		queue.Done(name)
	}
}

// approveRequest approves a request. If the request was not approved, the error contains the reason.
func (a approver) approveRequest(ctx context.Context, request *certificatesv1.CertificateSigningRequest) error {
	name, err := claimedNodeName(request)
	if err != nil {
		return err
	}
	node, err := a.clientset.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read the node: %w", err)
	}
	if !strings.HasPrefix(node.Spec.ProviderID, "incus:///") {
		return fmt.Errorf("node %s is not a machine of Incus: its provider ID is %q", name, node.Spec.ProviderID)
	}
	addresses, err := a.instanceAddresses(ctx, name)
	if err != nil {
		return fmt.Errorf("ask Incus for the addresses of %s: %w", name, err)
	}
	if err := checkRequestedNames(request, append(addresses, name)); err != nil {
		return err
	}
	request.Status.Conditions = append(request.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue,
		Reason: "AddressesOfTheMachine", Message: "Incus says that name and addresses are those of the machine.",
	})
	_, err = a.clientset.CertificatesV1().
		CertificateSigningRequests().
		UpdateApproval(ctx, request.Name, request, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("approve: %w", err)
	}
	slog.Info("certificate is approved", "request", request.Name, "node", name)
	return nil
}

// claimedNodeName returns the name of the node that requests a certificate for itself. The user name that the API
// server authenticated contains the node's name.
func claimedNodeName(request *certificatesv1.CertificateSigningRequest) (string, error) {
	name, isNode := strings.CutPrefix(request.Spec.Username, nodeUserPrefix)
	if !isNode || name == "" || !slices.Contains(request.Spec.Groups, nodeGroup) {
		return "", fmt.Errorf("%q is not a kubelet", request.Spec.Username)
	}
	parsed, err := parseSigningRequest(request)
	if err != nil {
		return "", err
	}
	if parsed.Subject.CommonName != request.Spec.Username ||
		!slices.Equal(parsed.Subject.Organization, []string{nodeGroup}) {
		return "", fmt.Errorf("it asks for a certificate of another: %s", parsed.Subject)
	}
	allowed := []certificatesv1.KeyUsage{
		certificatesv1.UsageServerAuth,
		certificatesv1.UsageDigitalSignature,
		certificatesv1.UsageKeyEncipherment,
	}
	for _, usage := range request.Spec.Usages {
		if !slices.Contains(allowed, usage) {
			return "", fmt.Errorf("it asks for the usage %q", usage)
		}
	}
	return name, nil
}

// checkRequestedNames returns an error if the requested certificate has a name or address that is not in own.
func checkRequestedNames(request *certificatesv1.CertificateSigningRequest, own []string) error {
	parsed, err := parseSigningRequest(request)
	if err != nil {
		return err
	}
	if len(parsed.EmailAddresses)+len(parsed.URIs) > 0 || len(parsed.DNSNames)+len(parsed.IPAddresses) == 0 {
		return errors.New("a kubelet's certificate is for names and addresses")
	}
	asked := slices.Clone(parsed.DNSNames)
	for _, address := range parsed.IPAddresses {
		asked = append(asked, address.String())
	}
	for _, one := range asked {
		if !slices.Contains(own, one) {
			return fmt.Errorf("it asks for %s: its machine has %v", one, own)
		}
	}
	return nil
}

func parseSigningRequest(request *certificatesv1.CertificateSigningRequest) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(request.Spec.Request)
	if block == nil {
		return nil, errors.New("its request is not in PEM form")
	}
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parse its request: %w", err)
	}
	return parsed, nil
}
