//! A store whose process is killed at some request, before or after that is carried out.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

/// Moment of a kill.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kill {
    /// The request, counted from 0.
    pub(crate) at: u64,
    /// True if it is carried out, and its answer lost.
    pub(crate) is_done: bool,
}

/// A lack of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lack {
    Nothing,
    /// It answers that it has no conditional put.
    Condition,
    /// It ignores the condition.
    SilentCondition,
    /// It refuses all writes.
    Writes,
}

#[derive(Clone)]
pub(crate) struct Faulty {
    store: Arc<dyn ObjectStore>,
    parts: Option<Arc<dyn MultipartStore>>,
    kill: Option<Kill>,
    lack: Lack,
    requests: Arc<AtomicU64>,
    /// Uploads with a part that have not ended.
    pub(crate) open: Arc<Mutex<BTreeSet<String>>>,
}

impl fmt::Debug for Faulty {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{self}")
    }
}

impl fmt::Display for Faulty {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "faulty {}", self.store)
    }
}

impl Faulty {
    pub(crate) fn new(store: Arc<dyn ObjectStore>, parts: Option<Arc<dyn MultipartStore>>) -> Self {
        let (requests, open) = (Arc::default(), Arc::default());
        Self { store, parts, kill: None, lack: Lack::Nothing, requests, open }
    }

    pub(crate) fn killed(&self, kill: Option<Kill>) -> Self {
        Self { kill, requests: Arc::default(), ..self.clone() }
    }

    pub(crate) fn lacking(self, lack: Lack) -> Self {
        Self { lack, ..self }
    }

    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// True if a request that is counted now is carried out, and true if its answer arrives.
    fn fate(&self) -> (bool, bool) {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        match self.kill {
            Some(Kill { at, is_done }) => (number < at || number == at && is_done, number < at),
            None => (true, true),
        }
    }

    async fn fated<T>(&self, request: impl Future<Output = Result<T>>) -> Result<T> {
        let (is_done, arrives) = self.fate();
        if !is_done {
            return Err(dead());
        }
        let answer = request.await;
        if arrives { answer } else { Err(dead()) }
    }
}

fn dead() -> Error {
    Error::Generic { store: "faulty", source: "the process was killed".into() }
}

fn denied() -> Error {
    let source = "Server returned non-2xx status code: 403 Forbidden: AccessDenied".into();
    Error::PermissionDenied { path: String::new(), source }
}

#[async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let is_conditional = matches!(options.mode, PutMode::Create);
        let options = match self.lack {
            Lack::Writes => return Err(denied()),
            Lack::Condition if is_conditional => {
                return Err(Error::NotImplemented { operation: "put".into(), implementer: "faulty".into() });
            }
            Lack::SilentCondition => PutOptions::default(),
            _ => options,
        };
        self.fated(self.store.put_opts(path, payload, options)).await
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        unreachable!("parts are put by themselves")
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.fated(self.store.get_opts(path, options)).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let this = self.clone();
        let delete = move |path: Result<Path>| {
            let this = this.clone();
            async move {
                let path = path?;
                let one = futures_util::stream::iter([Ok(path)]).boxed();
                let mut deleted = this.store.delete_stream(one);
                this.fated(async { deleted.next().await.expect("one was given") }).await
            }
        };
        paths.then(delete).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (is_done, arrives) = self.fate();
        if is_done && arrives {
            return self.store.list(prefix);
        }
        futures_util::stream::iter([Err(dead())]).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.fated(self.store.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.fated(self.store.copy_opts(from, to, options)).await
    }
}

#[async_trait]
impl MultipartStore for Faulty {
    async fn create_multipart(&self, path: &Path) -> Result<String> {
        self.fated(self.parts.as_ref().unwrap().create_multipart(path)).await
    }

    async fn put_part(&self, path: &Path, id: &String, part: usize, data: PutPayload) -> Result<PartId> {
        let put = async {
            self.open.lock().unwrap().insert(id.clone());
            self.parts.as_ref().unwrap().put_part(path, id, part, data).await
        };
        self.fated(put).await
    }

    async fn complete_multipart(&self, path: &Path, id: &String, parts: Vec<PartId>) -> Result<PutResult> {
        let complete = async {
            self.open.lock().unwrap().remove(id);
            self.parts.as_ref().unwrap().complete_multipart(path, id, parts).await
        };
        self.fated(complete).await
    }

    async fn abort_multipart(&self, path: &Path, id: &String) -> Result<()> {
        let abort = async {
            self.open.lock().unwrap().remove(id);
            self.parts.as_ref().unwrap().abort_multipart(path, id).await
        };
        self.fated(abort).await
    }
}
