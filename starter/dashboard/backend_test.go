package dashboard

import (
	"context"
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/apimachinery/pkg/runtime"
	kubefake "k8s.io/client-go/kubernetes/fake"

	activities "millwright/activities/drain"
	"millwright/decide/drain"
	"millwright/starter/clitest"
	"millwright/starter/kubecli"
)

// fakeTemporal answers with the runs of a machine.
type fakeTemporal struct {
	*clitest.FakeTemporal

	runs  []*workflowpb.WorkflowExecutionInfo
	next  []byte // token of the next page; nil: there is none
	query string // the last query
}

func (f *fakeTemporal) ListWorkflow(
	_ context.Context,
	r *workflowservice.ListWorkflowExecutionsRequest,
) (*workflowservice.ListWorkflowExecutionsResponse, error) {
	f.query = r.GetQuery()
	if f.Err != nil {
		return nil, f.Err
	}
	return &workflowservice.ListWorkflowExecutionsResponse{Executions: f.runs, NextPageToken: f.next}, nil
}

// backend is a running server with fakes of cluster and Temporal.
type backend struct {
	fakes    *clitest.FakeBackend
	temporal *fakeTemporal
	server   *server
	guard    guard
	web      *httptest.Server
	client   *http.Client // has the cookie
}

// newBackend starts a server with these objects. The fakes have the heartbeats of a worker and a bridge.
func newBackend(t *testing.T, workerRenewed time.Duration, objects ...runtime.Object) *backend {
	t.Helper()
	b := &backend{fakes: clitest.NewFakeBackend(objects...)}
	b.fakes.ClusterClient = kubefake.NewClientset(
		lease("millwright-worker", max(workerRenewed, time.Second)), lease("millwright-bridge", time.Second),
	)
	b.temporal = &fakeTemporal{FakeTemporal: &clitest.FakeTemporal{Status: enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING}}
	b.start(t)
	return b
}

// start starts the server; the caches are full when start returns.
func (b *backend) start(t *testing.T) {
	t.Helper()
	e := b.fakes.Environment()
	e.DialTemporal = func(kubecli.TemporalFlags) (client.Client, error) { return b.temporal, nil }
	d := &dashboardCommand{Environment: e, temporalUI: "http://127.0.0.1:8233", interval: 10 * time.Millisecond}
	d.temporalFlags.Address, d.temporalFlags.Namespace = "127.0.0.1:7233", "millwright"
	ctx, stop := context.WithCancel(t.Context())
	clients, err := e.NewClients(kubecli.ClusterAccess{})
	require.NoError(t, err)
	b.server, err = d.newServer(ctx, clients)
	require.NoError(t, err)
	b.server.watcher.context = "seed-eu-1"
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b.server.watcher.run(ctx)
	}()
	b.web = httptest.NewUnstartedServer(nil)
	b.guard = b.server.guarded(portOf(b.web.Listener))
	b.web.Config.Handler = b.guard
	b.web.Start()
	t.Cleanup(func() {
		stop()
		b.web.Close()
		<-ended
	})
	require.Eventually(t, func() bool {
		f := b.server.watcher.current()
		return !f.isLoading && len(f.processes) > 0
	}, 30*time.Second, 10*time.Millisecond)
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	b.client = &http.Client{Jar: jar}
	answer, err := b.client.Get(b.address("/?token=" + b.guard.token))
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusOK, answer.StatusCode)
}

func (b *backend) address(path string) string { return b.web.URL + path }

// page reads a page with the cookie.
func (b *backend) page(t *testing.T, path string) (code int, page *element) {
	t.Helper()
	answer, err := b.client.Get(b.address(path))
	require.NoError(t, err)
	defer func() { _ = answer.Body.Close() }()
	return answer.StatusCode, parse(t, answer.Body)
}

// withDrain makes Temporal answer with the runs of a machine and the pods of its drain.
func (b *backend) withDrain(runs []*workflowpb.WorkflowExecutionInfo, workflow string, pods *drain.Overview) {
	b.temporal.runs, b.temporal.WorkflowID = runs, workflow
	if pods != nil {
		b.temporal.PendingActivities = []*workflowpb.PendingActivityInfo{
			{
				ActivityId:      "evict-pods",
				State:           enumspb.PENDING_ACTIVITY_STATE_STARTED,
				Attempt:         1,
				LastStartedTime: timestamppb.New(now.Add(-83 * time.Minute)),
				HeartbeatDetails: clitest.EncodePayloads(
					activities.Progress{Picture: *pods},
				),
				LastHeartbeatTime: timestamppb.New(now.Add(-2 * time.Second)),
			},
		}
	}
}

// element is an element of a parsed page.
type element struct {
	name       string
	attributes map[string]string
	children   []*element
	text       string // of a text
	parent     *element
}

var scriptPattern = regexp.MustCompile(`(?s)<script>.*?</script>`)

// parse reads a page as XML: the templates write well-formed pages, so a text that changes the structure of a page is
// found.
func parse(t *testing.T, from io.Reader) *element {
	t.Helper()
	text, err := io.ReadAll(from)
	require.NoError(t, err)
	d := xml.NewDecoder(strings.NewReader(scriptPattern.ReplaceAllString(string(text), "")))
	d.Entity = xml.HTMLEntity
	root := &element{}
	at := root
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			require.Equal(t, root, at, "an element is not closed")
			return root
		}
		require.NoError(t, err, string(text))
		switch token := token.(type) {
		case xml.StartElement:
			e := &element{name: token.Name.Local, attributes: map[string]string{}, parent: at}
			for _, a := range token.Attr {
				e.attributes[a.Name.Local] = a.Value
			}
			at.children = append(at.children, e)
			at = e
		case xml.EndElement:
			at = at.parent
		case xml.CharData:
			at.children = append(at.children, &element{text: string(token), parent: at})
		}
	}
}

// all returns the elements with a name, and with a class if it is not empty.
func (e *element) all(name, class string) (found []*element) {
	for _, child := range e.children {
		classes := strings.Fields(child.attributes["class"])
		has := class == ""
		for _, c := range classes {
			has = has || c == class
		}
		if child.name == name && has {
			found = append(found, child)
		}
		found = append(found, child.all(name, class)...)
	}
	return found
}

// String returns the text of an element with single spaces.
func (e *element) String() string { return kubecli.CollapseSpaces(e.rawText()) }

func (e *element) rawText() string {
	text := e.text
	for _, child := range e.children {
		if child.name != "style" && child.name != "symbol" {
			text += child.rawText() + " "
		}
	}
	return text
}

func texts(elements []*element) (all []string) {
	for _, e := range elements {
		all = append(all, e.String())
	}
	return all
}
