'use strict';
// Replaces the main part of the page when the server says that something changed, and copies commands.
(function () {
  document.documentElement.classList.add('js');
  var main = document.getElementById('main');
  var status = document.getElementById('status');
  var clock = document.getElementById('clock');
  var live = document.getElementById('live');
  var busy = false;
  var again = false;

  // A person who fills in the form or marks a text keeps it.
  function isInUse() {
    var at = document.activeElement;
    if (at && main.contains(at) && /^(INPUT|SELECT)$/.test(at.tagName)) { return true; }
    var marked = window.getSelection();
    return !!marked && !marked.isCollapsed && main.contains(marked.anchorNode);
  }

  function pathOfFocus() {
    var at = document.activeElement;
    if (!at || !main.contains(at) || !at.getAttribute) { return null; }
    return { href: at.getAttribute('href'), copy: at.getAttribute('data-copy') };
  }

  function restoreFocus(was) {
    if (!was) { return; }
    var all = main.querySelectorAll('a[href], button[data-copy]');
    Array.prototype.some.call(all, function (e) {
      var same = was.copy ? e.getAttribute('data-copy') === was.copy : was.href && e.getAttribute('href') === was.href;
      if (same) { e.focus({ preventScroll: true }); }
      return same;
    });
  }

  function show(text) {
    var fresh = new DOMParser().parseFromString(text, 'text/html').getElementById('main');
    if (!fresh) { return; }
    var focus = pathOfFocus();
    main.replaceChildren.apply(main, Array.prototype.slice.call(fresh.childNodes));
    restoreFocus(focus);
    if (status.textContent !== fresh.dataset.status) { status.textContent = fresh.dataset.status; }
    clock.textContent = fresh.dataset.clock;
    document.title = fresh.dataset.title;
    setLive('live', '');
  }

  function setLive(text, className) {
    live.textContent = text;
    live.className = className;
  }

  function refresh() {
    if (busy || document.hidden) { again = true; return; }
    if (isInUse()) {
      again = true;
      setLive('waits while the form or a text is in use. As of', '');
      return;
    }
    busy = true;
    again = false;
    fetch(location.href, { headers: { 'Millwright-Fragment': 'main' }, credentials: 'same-origin', cache: 'no-store', redirect: 'error' })
      .then(function (answer) {
        if (answer.status === 401) { throw new Error('session'); }
        return answer.text();
      })
      .then(show)
      .catch(function () { setLive('not live: start millwright dashboard again. As of', 'lost'); })
      .then(function () { busy = false; });
  }

  if (window.EventSource) {
    var events = new EventSource('/events');
    events.addEventListener('change', refresh);
    events.onerror = function () { setLive('not live: the command has ended, or cannot be reached. As of', 'lost'); };
    setInterval(function () { if (again) { refresh(); } }, 1000);
    document.addEventListener('visibilitychange', function () { if (again) { refresh(); } });
  }

  document.addEventListener('click', function (event) {
    var button = event.target.closest ? event.target.closest('button.copy') : null;
    if (!button) { return; }
    navigator.clipboard.writeText(button.dataset.copy).then(function () {
      button.textContent = 'Copied';
      status.textContent = 'Copied: ' + button.dataset.copy;
      setTimeout(function () { button.textContent = 'Copy'; }, 2000);
    });
  });
}());
