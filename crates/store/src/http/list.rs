//! Lists directories, as far as the server does.
//!
//! "404 Not Found" for a directory means that it is not there only if no list above names it. All
//! other answers without a list say nothing about the names.

use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderName};
use reqwest::{Method, StatusCode};

use super::body::{Body, Received, body_in_room};
use super::client::{HttpAnswer, Request};
use super::failure::Failure;
use super::head::{is_html, kind_of};
use super::index::{self, IndexNames};
use super::refusal::of_answer;
use super::shared::{ListingKind, ServerState};
use crate::remote::server::ListingPage;
use crate::{Prefix, StoreEntry};
use zarrfs_base::error::Error;
use zarrfs_base::resources;
use zarrfs_base::width::ToUsize;

/// The most bytes of a list. With less than 2 GiB of memory, a sixteenth of that.
const LONGEST_LIST: (u64, u64) = (64 << 20, 16);

/// The most names in a list. Each takes about 500 bytes while the list is read. With less than
/// 2 GiB of memory, one for each 2 KiB of that.
const MOST_NAMES: (u64, u64) = (1 << 20, 2 << 10);

/// What an answer says about a directory.
enum ListingAnswer {
    Names(IndexNames),
    Absent,
    /// It lists nothing.
    Nothing(String),
    Refused(StatusCode, Failure),
}

impl ServerState {
    /// Lists a directory.
    pub(super) async fn list(
        &self,
        prefix: &Prefix,
        received: &Received,
    ) -> Result<ListingPage, Failure> {
        let known = *self.form.lock();
        match self.found(prefix, received).await? {
            ListingAnswer::Names(names) => Ok(self.page_of(names)),
            // Without a list of one above it may be there, and not be listed.
            ListingAnswer::Absent if known.is_some() && !prefix.is_root() => {
                if self.may_be_there(prefix, received).await? {
                    return Err(no_list("it answered 404 Not Found, but may have this directory"));
                }
                Ok(ListingPage::default())
            }
            ListingAnswer::Absent => Err(no_list("it answered 404 Not Found")),
            ListingAnswer::Nothing(why) => Err(no_list(&why)),
            // So do servers that list nothing.
            ListingAnswer::Refused(StatusCode::FORBIDDEN, _) if known.is_none() => {
                Err(no_list("it answered 403 Forbidden"))
            }
            ListingAnswer::Refused(_, failure) => Err(failure),
        }
    }

    /// Asks for a directory in the form in which the server lists.
    async fn found(&self, prefix: &Prefix, received: &Received) -> Result<ListingAnswer, Failure> {
        let known = *self.form.lock();
        Ok(match known {
            Some(ListingKind::Page) => self.page(prefix, received).await?,
            Some(ListingKind::Dav) => self.dav(prefix, received).await?,
            None => match self.page(prefix, received).await? {
                ListingAnswer::Names(names) => {
                    ListingAnswer::Names(self.noted(ListingKind::Page, names))
                }
                other => match self.dav(prefix, received).await {
                    Ok(ListingAnswer::Names(names)) => {
                        ListingAnswer::Names(self.noted(ListingKind::Dav, names))
                    }
                    _ => other,
                },
            },
        })
    }

    /// Whether a directory may be there for which the server answers that it is not: unless a list
    /// above shows that it is not.
    async fn may_be_there(&self, prefix: &Prefix, received: &Received) -> Result<bool, Failure> {
        let mut below = prefix.clone();
        while let Some(key) = below.as_key() {
            let above = key.parent();
            match self.found(&above, received).await? {
                ListingAnswer::Names(names) => {
                    let name = key.name().to_owned();
                    return Ok(names.contains_key(&StoreEntry::Prefix(name.clone()))
                        || names.contains_key(&StoreEntry::Key(name)));
                }
                ListingAnswer::Absent => below = above,
                ListingAnswer::Nothing(_) | ListingAnswer::Refused(..) => return Ok(true),
            }
        }
        Ok(true)
    }

    fn noted(&self, form: ListingKind, names: IndexNames) -> IndexNames {
        *self.form.lock() = Some(form);
        names
    }

    fn page_of(&self, names: IndexNames) -> ListingPage {
        let entry = |(entry, listed): (StoreEntry, index::IndexEntry)| {
            let stat = match entry {
                StoreEntry::Key(_) => self.tags.stat_of(&listed),
                StoreEntry::Prefix(_) => None,
            };
            (entry, stat)
        };
        ListingPage { entries: names.into_iter().map(entry).collect(), next: None }
    }

    async fn page(&self, prefix: &Prefix, received: &Received) -> Result<ListingAnswer, Failure> {
        let request = Request::get(self.client.base.of_prefix(prefix));
        // Caddy and zarrfs send JSON then.
        let answer = self.client.send(request.with(ACCEPT, "application/json, */*;q=0.5")).await?;
        if answer.response.status() != StatusCode::OK {
            return without_list(answer).await;
        }
        let headers = answer.response.headers();
        let kind = kind_of(headers).unwrap_or_default();
        let (is_json, is_html) = (kind.eq_ignore_ascii_case("application/json"), is_html(headers));
        let another = "it sends something else than a list".to_owned();
        if answer.elsewhere.is_some() || !(is_json || is_html) {
            return Ok(ListingAnswer::Nothing(another));
        }
        let url = answer.url.clone();
        let names = self.names(answer, received, |text, most| {
            if is_json {
                index::parse_json(&url, text, most)
            } else {
                index::parse_html(&url, &String::from_utf8_lossy(text), most)
            }
        });
        let names = names.await?;
        let is_page = || if is_html { "it sends a web page".to_owned() } else { another };
        Ok(names.map_or_else(|| ListingAnswer::Nothing(is_page()), ListingAnswer::Names))
    }

    /// Reads the names in an answer; `None` if it is no list.
    async fn names(
        &self,
        answer: HttpAnswer,
        received: &Received,
        parse: impl FnOnce(&[u8], usize) -> Option<IndexNames>,
    ) -> Result<Option<IndexNames>, Failure> {
        let (longest, most) = (within(LONGEST_LIST), within(MOST_NAMES));
        let (Body { bytes, is_cut }, _place) =
            body_in_room(answer.response, longest, received, &self.long_lists).await?;
        let names = if is_cut { None } else { parse(&bytes, most.to_usize()) };
        let is_more =
            |names: &IndexNames| u64::try_from(names.len()).map_or(true, |len| len > most);
        let limit = match &names {
            _ if is_cut => format!("{longest} bytes"),
            Some(names) if is_more(names) => format!("{most} names"),
            Some(_) | None => return Ok(names),
        };
        let detail =
            format!("the list of names is too long: with this memory, the limit is {limit}");
        Err(Failure::Final(Error::too_large(detail)))
    }

    async fn dav(&self, prefix: &Prefix, received: &Received) -> Result<ListingAnswer, Failure> {
        let method = Method::from_bytes(b"PROPFIND").unwrap_or_default();
        let url = self.client.base.of_prefix(prefix);
        let request = Request { method, body: index::DAV_BODY, ..Request::get(url) };
        let request = request.with(HeaderName::from_static("depth"), "1");
        let answer = self.client.send(request.with(CONTENT_TYPE, "application/xml")).await?;
        if answer.response.status() != StatusCode::MULTI_STATUS {
            return without_list(answer).await;
        }
        let url = answer.url.clone();
        let parse =
            |text: &[u8], most| index::parse_dav(&url, &String::from_utf8_lossy(text), most);
        let names = self.names(answer, received, parse).await?;
        let broken = "its list in XML cannot be read".to_owned();
        Ok(names.map_or_else(|| ListingAnswer::Nothing(broken), ListingAnswer::Names))
    }
}

/// Returns a limit with the memory of this process.
fn within((limit, parts): (u64, u64)) -> u64 {
    resources::within_memory(limit, parts)
}

/// Returns what an answer without a list means.
async fn without_list(answer: HttpAnswer) -> Result<ListingAnswer, Failure> {
    match answer.response.status() {
        StatusCode::NOT_FOUND | StatusCode::GONE => Ok(ListingAnswer::Absent),
        status @ (StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED) => {
            Ok(ListingAnswer::Refused(status, of_answer(answer.response).await))
        }
        status if status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED => {
            Err(of_answer(answer.response).await)
        }
        status => Ok(ListingAnswer::Nothing(format!("it answered {status}"))),
    }
}

fn no_list(why: &str) -> Failure {
    let detail = format!("the server does not list names here: {why}");
    Failure::Final(Error::unsupported(detail))
}
