package dashboard

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"millwright/api/v1alpha1"
	"millwright/observe/capi/capitest"
	"millwright/starter/clitest"
	"millwright/starter/kubecli"
)

func TestOverviewShowsWhatStandsStillFirst(t *testing.T) {
	b := newBackend(t, 0, append(blockedPool().objects(), newPool("pay", "api", 3).with(3, 4).objects()...)...)
	code, page := b.page(t, "/")
	assert.Equal(t, http.StatusOK, code)
	assert.Equal(t, []string{"1 pool stands still, for 1 cause; 12 of 13 machines ready."}, texts(page.all("h1", "")))
	assert.Equal(t, []string{"1 stopped – Overview – Millwright – seed-eu-1"}, texts(page.all("title", ""))[:1])
	cards := page.all("li", "cause")
	require.Len(t, cards, 1)
	assert.Equal(t, []string{budgetCause}, texts(cards[0].all("h3", "")))
	card := cards[0].String()
	assert.Contains(t, card, "2 machines of 1 pool for 83m (since 12:43:07 UTC)")
	assert.Contains(t, card, "Next The pods still on its node are deleted at 14:43:07 UTC (in 37m)")
	assert.Equal(t, []string{"kubectl edit pdb -n shop web"}, texts(cards[0].all("code", "command")))
	assert.Equal(t, "/pool/mcd/shop/web", cards[0].all("a", "")[0].attributes["href"])
	rows := page.all("table", "pools")[0].all("tr", "")
	require.Len(t, rows, 3)
	assert.True(t, strings.HasPrefix(rows[1].String(), "shop/web stands still"), rows[1].String())
	assert.Equal(t, "9 of 10 ready, 4 up to date, 5 of an old revision, 2 leaving, 1 surge",
		rows[1].all("svg", "")[1].attributes["aria-label"], "a bar has words")
	for _, h := range page.all("th", "") {
		assert.NotEmpty(t, h.attributes["scope"])
	}
	assert.Empty(t, page.all("div", "alarm"))
}

func TestPoolPageShowsTheRollout(t *testing.T) {
	b := newBackend(t, 0, rollingPool().objects()...)
	code, page := b.page(t, "/pool/mcd/shop/web")
	assert.Equal(t, http.StatusOK, code)
	steps := page.all("ol", "steps")[0].all("li", "")
	assert.Equal(
		t,
		[]string{
			"2 machines, then approval passed",
			"2 5 machines, then wait 10m in progress",
			"3 10 machines, then approval next",
		},
		texts(steps),
	)
	assert.Equal(t, "step", steps[1].attributes["aria-current"])
	assert.Contains(
		t,
		page.String(),
		"shop/web: revision 8 waits: 1 new machine is not available yet: 9 are available, 10 are needed.",
	)
	assert.Contains(t, page.String(), "millwright rollout pause shop/web")
	assert.Contains(t, page.String(), "image 2026.11.7", "the history")
	assert.Len(t, page.all("table", "machines")[0].all("tbody", "")[0].all("tr", ""), 11)
	assert.Contains(t, page.all("p", "links")[0].all("a", "")[0].attributes["href"],
		"http://127.0.0.1:8233/namespaces/millwright/workflows/garden%2Frollout%2Fshop%2Fweb%2F8")

	code, page = b.page(t, "/pool/mcd/shop/nothing")
	assert.Equal(t, http.StatusNotFound, code)
	assert.Contains(t, page.String(), "There is no pool shop/nothing here")
}

func TestMachinePageShowsDrainAndLife(t *testing.T) {
	b := newBackend(t, 0, blockedPool().objects()...)
	b.withDrain(runsOfBlockedMachine(), drainWorkflow(), blockedOverview())
	b.temporal.next = []byte("more")
	code, page := b.page(t, "/machine/mc/shop/"+blockedMachineName())
	assert.Equal(t, http.StatusOK, code)
	text := page.String()
	assert.Contains(t, text, "Older runs: millwright history shop/"+blockedMachineName())
	assert.Contains(t, text, "shop/web-6d5f8c9b7-k2x8q Blocked 81m 163 shop/web (needs a person) 14:06:27 UTC")
	assert.Contains(t, text, "evict-pods: attempt 1 is open since 12:43:07 UTC (83m)", "the open call")
	assert.Contains(t, text, "14 gone, 1 terminating, 2 blocked, 3 waiting for their turn, 4 stay")
	runs := page.all("table", "runs")[0].all("tbody", "")[0].all("tr", "")
	require.Len(t, runs, 5)
	assert.Equal(t, "Drain began at 12:43:07 UTC (83m) Running: step evict-pods 83m timeline details", runs[0].String())
	links := runs[0].all("a", "")
	assert.True(t, strings.HasSuffix(links[0].attributes["href"], "/0190a0004980/timeline"), links[0].attributes["href"])
	assert.True(t, strings.HasSuffix(links[1].attributes["href"], "/0190a0004980/user-metadata"))
	assert.Equal(
		t,
		`MachineNamespace="shop" AND Machine="`+blockedMachineName()+`" AND WorkflowId STARTS_WITH "garden/"`,
		b.temporal.query,
	)
	line := runs[4].all("rect", "run")[0].attributes
	assert.Equal(t, "0.00%", line["x"], "the oldest run is at the left")
}

func TestMachinePageWithoutTemporal(t *testing.T) {
	b := newBackend(t, 0, blockedPool().objects()...)
	b.temporal.Err = errors.New("connection refused")
	code, page := b.page(t, "/machine/mc/shop/"+blockedMachineName())
	assert.Equal(t, http.StatusOK, code)
	assert.Contains(t, page.String(), "Temporal at 127.0.0.1:7233 does not answer: connection refused")
	assert.Contains(t, page.String(), "what follows is from the Machine alone", "the drain is shown as the Machine says")
	assert.Contains(t, page.String(), budgetCause)
}

func TestPageOfAMachineThatIsGone(t *testing.T) {
	b := newBackend(t, 0)
	code, page := b.page(t, "/machine/mc/shop/web-7")
	assert.Equal(t, http.StatusNotFound, code)
	assert.Contains(t, page.String(), "Temporal has no workflow of it")
	b.temporal.runs = []*workflowpb.WorkflowExecutionInfo{
		run("Machine", "garden/machine/shop/web-8", time.Hour, time.Minute, enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED),
	}
	code, page = b.page(t, "/machine/mc/shop/web-8")
	assert.Equal(t, http.StatusOK, code)
	assert.Contains(t, page.String(), "This machine is gone.")
	assert.Contains(t, page.String(), "Terminated")
}

func TestAlarmsAndReadErrors(t *testing.T) {
	b := newBackend(t, 7*time.Minute, newPool("shop", "web", 3).with(3, 4).objects()...)
	_, page := b.page(t, "/")
	alarms := page.all("div", "severe")
	require.Len(t, alarms, 1)
	assert.Equal(
		t,
		"No worker has been at work since 13:59:07 UTC (7m): nothing moves until one reaches Temporal and the API server. millwright doctor Copy",
		alarms[0].String(),
	)
	assert.Equal(
		t,
		[]string{"What moves now is not known: no worker is at work. By the last statuses: 3 of 3 machines ready."},
		texts(page.all("h1", "")),
	)

	refused := &backend{fakes: clitest.NewFakeBackend(), temporal: b.temporal}
	refused.fakes.ClusterClient = b.fakes.ClusterClient
	refused.fakes.MachineClient.PrependReactor(
		"list",
		"machines",
		func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(
				schema.GroupResource{Resource: "machines"},
				"",
				errors.New("User ann cannot list"),
			)
		},
	)
	refused.start(t)
	_, page = refused.page(t, "/")
	assert.Contains(
		t,
		page.String(),
		"Machines cannot be read: machines is forbidden: User ann cannot list; with --namespace, the command reads one namespace only",
	)
	assert.Contains(t, page.String(), "What moves now is not known")
}

// An API server that cannot be reached is one line, and a Cluster API that is found later is shown.
func TestAPIServerThatDoesNotAnswer(t *testing.T) {
	dial := &url.Error{Op: "Get", URL: "https://10.0.0.1/apis", Err: errors.New("dial tcp: connection refused")}
	assert.Equal(t, []string{
		"a, b and c cannot be read: the API server does not answer: dial tcp: connection refused", "d cannot be read: x",
	}, readErrorLines(map[string]string{"c": errorText(dial), "a": errorText(fmt.Errorf("ask: %w", dial)), "b": errorText(dial), "d": "x"}))

	down := true
	reader := kubecli.NewClusterAPIReader(capitest.NewFakeServer().Client, discoverer(func() error {
		if down {
			return dial
		}
		return nil
	}))
	w := newWatcher(
		kubecli.Clients{MachineClient: clitest.NewFakeBackend().MachineClient, ClusterAPI: reader},
		"",
		"",
		time.Now,
	)
	assert.False(t, w.addClusterAPI())
	assert.Len(t, w.informers, 3)
	down = false
	assert.True(t, w.addClusterAPI())
	assert.Len(t, w.informers, 6)
	assert.Empty(t, w.errors)
}

// discoverer is a discovery client that returns an error, or finds each API group.
type discoverer func() error

func (d discoverer) ServerResourcesForGroupVersion(version string) (*metav1.APIResourceList, error) {
	return &metav1.APIResourceList{GroupVersion: version}, d()
}

func TestMachineListIsPaged(t *testing.T) {
	b := newBackend(t, 0, newPool("shop", "web", 230).with(230, 4).objects()...)
	_, page := b.page(t, "/machines")
	assert.Len(t, page.all("tbody", "")[0].all("tr", ""), machinesPerPage)
	assert.Equal(t, "1 to 100 of 230 Next", page.all("nav", "paging")[0].String())
	_, page = b.page(t, "/machines?page=3&namespace=shop")
	assert.Len(t, page.all("tbody", "")[0].all("tr", ""), 30)
	assert.Equal(t, "/machines?namespace=shop&page=2", page.all("nav", "paging")[0].all("a", "")[0].attributes["href"])
}

// The token is exchanged for a cookie once, and is not in the address any more.
func TestTokenIsExchangedForACookie(t *testing.T) {
	b := newBackend(t, 0)
	plain := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	get := func(path string) *http.Response {
		answer, err := plain.Get(b.address(path))
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		return answer
	}
	answer := get("/machines?state=blocked&token=" + b.guard.token)
	assert.Equal(t, http.StatusSeeOther, answer.StatusCode)
	assert.Equal(t, "/machines?state=blocked", answer.Header.Get("Location"))
	cookie := answer.Cookies()[0]
	assert.True(t, cookie.HttpOnly)
	assert.Equal(t, http.SameSiteStrictMode, cookie.SameSite)
	assert.NotContains(t, cookie.Value, b.guard.token)
	assert.GreaterOrEqual(t, len(b.guard.token), 40)

	for _, path := range []string{"//evil.example/?token=", "/\\evil.example/?token=", "/..//evil.example?token="} {
		location, err := url.Parse(get(path + b.guard.token).Header.Get("Location"))
		require.NoError(t, err)
		assert.Empty(t, location.Host, path)
		assert.False(t, strings.HasPrefix(location.String(), "//"), path)
	}
	for _, path := range []string{"/", "/machines", "/events", "/?token=", "/?token=wrong", "/pool/mcd/shop/web", "/%2e%2e/x"} {
		answer := get(path)
		assert.Equal(t, http.StatusUnauthorized, answer.StatusCode, path)
		assert.Empty(t, answer.Cookies(), path)
	}
}

func TestRequestsOfOthersAreRefused(t *testing.T) {
	b := newBackend(t, 0, newPool("shop", "web", 3).with(3, 4).objects()...)
	send := func(change func(*http.Request)) (*http.Response, string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.address("/"), nil)
		require.NoError(t, err)
		r.AddCookie(&http.Cookie{Name: b.guard.cookieName, Value: b.guard.session})
		change(r)
		answer, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		return answer, string(text)
	}
	for name, row := range map[string]struct {
		change func(*http.Request)
		code   int
	}{
		"the person":                {func(*http.Request) {}, http.StatusOK},
		"the page itself":           {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-origin") }, http.StatusOK},
		"typed":                     {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "none") }, http.StatusOK},
		"own origin":                {func(r *http.Request) { r.Header.Set("Origin", b.web.URL) }, http.StatusOK},
		"localhost":                 {func(r *http.Request) { r.Host = "LocalHost:1234" }, http.StatusOK},
		"IPv6 loopback":             {func(r *http.Request) { r.Host = "[::1]:80" }, http.StatusOK},
		"HEAD":                      {func(r *http.Request) { r.Method = http.MethodHead }, http.StatusOK},
		"another name":              {func(r *http.Request) { r.Host = "rebind.example:80" }, http.StatusForbidden},
		"a name that looks like it": {func(r *http.Request) { r.Host = "localhost.example" }, http.StatusForbidden},
		"an address of the network": {func(r *http.Request) { r.Host = "10.0.0.7:80" }, http.StatusForbidden},
		"another origin":            {func(r *http.Request) { r.Header.Set("Origin", "http://evil.example") }, http.StatusForbidden},
		"an opaque origin":          {func(r *http.Request) { r.Header.Set("Origin", "null") }, http.StatusForbidden},
		"another port":              {func(r *http.Request) { r.Header.Set("Origin", "http://127.0.0.1:1") }, http.StatusForbidden},
		"another site":              {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, http.StatusForbidden},
		"another port's page":       {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") }, http.StatusForbidden},
		"POST":                      {func(r *http.Request) { r.Method = http.MethodPost }, http.StatusMethodNotAllowed},
		"DELETE":                    {func(r *http.Request) { r.Method = http.MethodDelete }, http.StatusMethodNotAllowed},
		"OPTIONS":                   {func(r *http.Request) { r.Method = http.MethodOptions }, http.StatusMethodNotAllowed},
		"an unknown method":         {func(r *http.Request) { r.Method = "BREW" }, http.StatusMethodNotAllowed},
	} {
		t.Run(name, func(t *testing.T) {
			answer, text := send(row.change)
			assert.Equal(t, row.code, answer.StatusCode)
			if row.code != http.StatusOK {
				assert.NotContains(t, text, "shop", "nothing of the cluster is shown")
			}
			h := answer.Header
			assert.Equal(t, "no-store", h.Get("Cache-Control"))
			assert.Equal(t, "nosniff", h.Get("X-Content-Type-Options"))
			assert.Equal(t, "no-referrer", h.Get("Referrer-Policy"))
			policy := h.Get("Content-Security-Policy")
			assert.Contains(t, policy, "default-src 'none'")
			assert.Contains(t, policy, "frame-ancestors 'none'")
			assert.NotContains(t, policy, "unsafe")
		})
	}
	for _, path := range []string{
		"/../../etc/passwd", "/%2e%2e%2f%2e%2e%2fetc/passwd", "/templates/live.js", "/pool/mcd/..%2f..%2fetc/passwd",
		"/machine/mc/shop/..%2f..%2fx", "/machine/secrets/shop/web", "/machine/mc/shop/%22%20OR%20%22", "/pool/mcd/shop/web/more",
	} {
		code, page := b.page(t, path)
		assert.Equal(t, http.StatusNotFound, code, path)
		assert.NotEmpty(t, page.all("h1", ""), path)
	}
	assert.Empty(t, b.temporal.query, "a text that is no name is not sent to Temporal")
}

// The policy allows exactly the script and the style of the page.
func TestPolicyHasTheHashesOfThePage(t *testing.T) {
	b := newBackend(t, 0)
	answer, err := b.client.Get(b.address("/"))
	require.NoError(t, err)
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	policy := answer.Header.Get("Content-Security-Policy")
	for kind, pattern := range map[string]string{"script": `(?s)<script>(.*?)</script>`, "style": `(?s)<style>(.*?)</style>`} {
		found := regexp.MustCompile(pattern).FindAllSubmatch(text, -1)
		require.Len(t, found, 1, kind)
		sum := sha256.Sum256(found[0][1])
		assert.Contains(t, policy, kind+"-src 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"';")
	}
	assert.NotRegexp(t, ` (style|on[a-z]+)="`, string(text), "attributes that the policy forbids")
}

// Texts of objects cannot change a page, wherever they are shown.
func TestTextsOfObjectsAreEscaped(t *testing.T) {
	const bad = `"'><script>alert(1)</script><img src=x onerror=alert(2)>&amp;{{.}}`
	pool := newPool(
		"shop",
		"web",
		2,
	).atRevision(8).
		with(1, 8).
		with(1, 7, leaving(time.Hour), waiting("evict-pods"+bad, bad, time.Hour, time.Hour, bad))
	pool.withOwnWait("RolloutWaiting", bad, time.Hour)
	pool.withStep("roll" + bad)
	objects := pool.objects()
	for _, o := range objects {
		switch o := o.(type) {
		case *v1alpha1.MachineSet:
			o.Annotations[v1alpha1.AnnotationChangeCause] = bad
			o.Spec.Template.Spec.Class.Name = bad
		case *v1alpha1.Machine:
			o.Status.LastOperation.Description, o.Spec.ProviderID, o.Status.CurrentStatus.Phase = bad, bad, v1alpha1.MachinePhase(
				bad,
			)
		case *v1alpha1.MachineDeployment:
			o.Annotations[v1alpha1.AnnotationRolloutHold] = bad
		}
	}
	b := newBackend(t, 0, objects...)
	b.server.watcher.mutex.Lock()
	b.server.watcher.context, b.server.watcher.fleet = "seed "+bad, nil
	b.server.watcher.mutex.Unlock()
	b.temporal.runs = []*workflowpb.WorkflowExecutionInfo{
		run(bad, bad, time.Hour, 0, enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING),
	}
	b.temporal.Err = nil
	name := pool.machines[1].Name
	for _, path := range []string{
		"/", "/machines", "/pool/mcd/shop/web", "/machine/mc/shop/" + name,
		"/?namespace=" + url.QueryEscape(bad) + "&cluster=" + url.QueryEscape(bad) + "&state=" + url.QueryEscape(bad),
		"/machines?pool=" + url.QueryEscape(bad), "/pool/mcd/shop/" + url.PathEscape(strings.ReplaceAll(bad, "/", "")),
	} {
		_, page := b.page(t, path) // a page that is not well-formed fails
		assert.Empty(t, page.all("img", ""), path)
		assert.Empty(t, page.all("script", ""), path)
		for _, a := range page.all("a", "") {
			assert.NotContains(t, a.attributes["href"], "javascript:", path)
		}
		assert.Contains(t, page.String(), "seed "+bad, "%s: the text itself is shown", path)
	}
}

// The script gets an event when an object changes, and the main part alone when it asks for it.
func TestPagesAreToldOfChanges(t *testing.T) {
	b := newBackend(t, 0, newPool("shop", "web", 3).with(3, 4).objects()...)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, b.address("/events"), nil)
	require.NoError(t, err)
	answer, err := b.client.Do(r)
	require.NoError(t, err)
	defer func() { _ = answer.Body.Close() }()
	assert.Equal(t, "text/event-stream", answer.Header.Get("Content-Type"))
	lines := bufio.NewScanner(answer.Body)
	next := func() string {
		for lines.Scan() {
			if data, found := strings.CutPrefix(lines.Text(), "data: "); found {
				return data
			}
		}
		return ""
	}
	first := next()
	require.NotEmpty(t, first)
	_, err = b.fakes.MachineClient.MachineV1alpha1().Machines("shop").Create(
		t.Context(), &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "new"}}, metav1.CreateOptions{},
	)
	require.NoError(t, err)
	assert.NotEqual(t, first, next())

	require.Eventually(t, func() bool {
		_, page := b.page(t, "/machines")
		return strings.Contains(page.String(), "4 machines")
	}, 30*time.Second, 20*time.Millisecond)
	r, err = http.NewRequestWithContext(t.Context(), http.MethodGet, b.address("/machines"), nil)
	require.NoError(t, err)
	r.Header.Set(fragmentHeader, "main")
	answer, err = b.client.Do(r)
	require.NoError(t, err)
	page := parse(t, answer.Body)
	require.NoError(t, answer.Body.Close())
	require.Len(t, page.children, 1)
	assert.Equal(t, "main", page.children[0].name)
	assert.Equal(t, "4 machines", page.children[0].attributes["data-status"])
}

// The command prints its address, serves until it is cancelled, and ends without an error.
func TestCommandServesUntilItIsCancelled(t *testing.T) {
	w := clitest.NewFakeBackend(newPool("shop", "web", 3).with(3, 4).objects()...)
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	c := Command(w.Environment())
	c.SetArgs([]string{"--kubeconfig", t.TempDir() + "/none"})
	c.SetOut(in)
	ended := make(chan error, 1)
	go func() { ended <- c.ExecuteContext(ctx) }()
	address, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	go func() { _, _ = io.Copy(io.Discard, out) }()
	parsed, err := url.Parse(strings.TrimSpace(address))
	require.NoError(t, err)
	assert.Equal(t, "127.0.0.1", parsed.Hostname())
	assert.NotEmpty(t, parsed.Query().Get("token"))
	answer, err := http.Get("http://" + parsed.Host + "/")
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	assert.Equal(t, http.StatusUnauthorized, answer.StatusCode)
	cancel()
	require.NoError(t, <-ended)
	_, err = net.DialTimeout("tcp", parsed.Host, time.Second)
	assert.Error(t, err, "nothing listens any more")
}

func TestFlagsThatAreRefused(t *testing.T) {
	for args, says := range map[string]string{
		"--address=0.0.0.0":                `--address "0.0.0.0" is no loopback address: give 127.0.0.1 or ::1`,
		"--address=localhost":              `--address "localhost" is no loopback address: give 127.0.0.1 or ::1`,
		"--address=10.0.0.7":               `--address "10.0.0.7" is no loopback address: give 127.0.0.1 or ::1`,
		"--interval=0s":                    "--interval 0s is not positive",
		"--ui-address=javascript:alert(1)": `--ui-address "javascript:alert(1)" is no URL`,
	} {
		w := clitest.NewFakeBackend()
		_, err := w.Run(t.Context(), Command(w.Environment()), args)
		assert.EqualError(t, err, says)
	}
}
