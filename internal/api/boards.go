package api

import (
	"net/http"
	"slices"
)

func (a *API) boards() []Board {
	if a.Boards == nil {
		return nil
	}
	return slices.Clone(a.Boards.Boards())
}

func (a *API) getBoards(r *http.Request) (any, error) {
	p := a.params(r, "limit", "after")
	boards, next := page(p, a.boards(), func(b Board) string { return b.ID })
	if p.err != nil {
		return nil, p.err
	}
	e := envelope(a, boards)
	e.Next = next
	return e, nil
}

func (a *API) getBoard(r *http.Request) (any, error) {
	if p := a.params(r); p.err != nil {
		return nil, p.err
	}
	id := r.PathValue("id")
	for _, b := range a.boards() {
		if b.ID == id {
			return envelope(a, b), nil
		}
	}
	return nil, &Error{Code: "not_found", Message: "there is no board " + id, Where: r.URL.Path, Hint: "GET " + ours + "/boards lists them"}
}

// grafanaHit is a line of Grafana's answer to GET /api/search.
type grafanaHit struct {
	ID          int      `json:"id"`
	UID         string   `json:"uid"`
	OrgID       int      `json:"orgId"`
	Title       string   `json:"title"`
	URI         string   `json:"uri"`
	URL         string   `json:"url"`
	Slug        string   `json:"slug"`
	Type        string   `json:"type"`
	Tags        []string `json:"tags"`
	IsStarred   bool     `json:"isStarred"`
	SortMeta    int      `json:"sortMeta"`
	IsDeleted   bool     `json:"isDeleted"`
	FolderTitle string   `json:"folderTitle,omitempty"`
}

// grafanaSearch answers as Grafana does, for scripts that look a dashboard up by name. Of Grafana's
// parameters it knows query, tag, dashboardUIDs and type; it has no folders, so that type=dash-folder
// finds nothing. It never fails for a parameter it does not know, as Grafana does not.
func (a *API) grafanaSearch(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	hits := []grafanaHit{}
	if t := q.Get("type"); a.Boards != nil && (t == "" || t == "dash-db") {
		for i, b := range a.Boards.Search(q.Get("query")) {
			if uids := q["dashboardUIDs"]; len(uids) > 0 && !slices.Contains(uids, b.UID) {
				continue
			}
			if !containsAll(b.Tags, q["tag"]) {
				continue
			}
			hits = append(hits, grafanaHit{ID: i + 1, UID: b.UID, OrgID: 1, Title: b.Title, URI: "db/" + b.UID,
				URL: "/d/" + b.UID + "/" + b.UID, Type: "dash-db", Tags: b.Tags})
		}
	}
	if err := a.writer.send(w, r, &hits); err != nil {
		refuse(w, faceGrafana, failure(r, err))
	}
}

func containsAll(have, want []string) bool {
	for _, w := range want {
		if !slices.Contains(have, w) {
			return false
		}
	}
	return true
}

// grafanaDashboard answers as Grafana does: {"meta": {...}, "dashboard": {...}}.
func (a *API) grafanaDashboard(w http.ResponseWriter, r *http.Request) {
	uid := r.PathValue("uid")
	if a.Boards != nil {
		if raw, ok := a.Boards.Grafana(uid); ok {
			answer := map[string]any{
				"meta": map[string]any{"type": "db", "canSave": false, "canEdit": false, "canAdmin": false, "canDelete": false,
					"slug": uid, "url": "/d/" + uid + "/" + uid, "version": 1, "folderTitle": "General", "provisioned": true},
				"dashboard": raw,
			}
			if err := a.writer.send(w, r, &answer); err != nil {
				refuse(w, faceGrafana, failure(r, err))
			}
			return
		}
	}
	refuse(w, faceGrafana, &Error{Code: "not_found", Message: "Dashboard not found", Where: uid, Hint: "GET /api/search lists them"})
}
