//! What kernels made, on candle's tape: a tensor that is there already becomes the result of an operation of
//! candle's, with a backward pass of its own. candle's custom operations hand over bare memory; here tensors
//! go in and come out.

use std::sync::{Mutex, PoisonError};

use candle_core::{
    CpuStorage, CudaStorage, CustomOp1, CustomOp2, CustomOp3, InplaceOp1, Layout, Result, Shape, Storage,
    Tensor, bail,
};

/// `made`, which nobody else has, as what came of these tensors. `back` goes from the gradient of what was
/// made to those of what it came of. Where none of these is differentiated by, nothing is kept.
pub fn taped<const N: usize>(
    name: &'static str,
    made: Tensor,
    from: [&Tensor; N],
    back: impl Fn(&Tensor) -> Result<[Tensor; N]> + Send + Sync + 'static,
) -> Result<Tensor> {
    if !from.iter().any(|tensor| tensor.track_op()) {
        return Ok(made);
    }
    let shape = made.shape().clone();
    let taken = Taken::default();
    made.inplace_op1(&taken)?;
    let made = Made {
        name,
        storage: taken.0,
        shape,
        back: Box::new(move |slope| back(&slope.contiguous()?).map(Vec::from)),
    };
    match from.as_slice() {
        [a] => a.apply_op1(made),
        [a, b] => a.apply_op2(b, made),
        [a, b, c] => a.apply_op3(b, c, made),
        _ => bail!("candle's operations have one to three arguments; `{name}` has {N}"),
    }
}

/// From the gradient of what came out to those of what went in, in order.
type Back = dyn Fn(&Tensor) -> Result<Vec<Tensor>> + Send + Sync;

/// An operation that is done already.
struct Made {
    name: &'static str,
    storage: Mutex<Option<Storage>>,
    shape: Shape,
    back: Box<Back>,
}

impl Made {
    fn take(&self) -> Option<Storage> {
        self.storage.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn cpu(&self) -> Result<(CpuStorage, Shape)> {
        match self.take() {
            Some(Storage::Cpu(storage)) => Ok((storage, self.shape.clone())),
            _ => bail!("`{}` was made elsewhere, or is used twice", self.name),
        }
    }

    fn cuda(&self) -> Result<(CudaStorage, Shape)> {
        match self.take() {
            Some(Storage::Cuda(storage)) => Ok((storage, self.shape.clone())),
            _ => bail!("`{}` was made elsewhere, or is used twice", self.name),
        }
    }

    fn slopes<const N: usize>(&self, slope: &Tensor) -> Result<[Option<Tensor>; N]> {
        let mut slopes = (self.back)(slope)?.into_iter();
        Ok([(); N].map(|()| slopes.next()))
    }
}

impl CustomOp1 for Made {
    fn name(&self) -> &'static str {
        self.name
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        self.cpu()
    }

    fn cuda_fwd(&self, _: &CudaStorage, _: &Layout) -> Result<(CudaStorage, Shape)> {
        self.cuda()
    }

    fn bwd(&self, _: &Tensor, _: &Tensor, slope: &Tensor) -> Result<Option<Tensor>> {
        let [a] = self.slopes(slope)?;
        Ok(a)
    }
}

impl CustomOp2 for Made {
    fn name(&self) -> &'static str {
        self.name
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        self.cpu()
    }

    fn cuda_fwd(
        &self,
        _: &CudaStorage,
        _: &Layout,
        _: &CudaStorage,
        _: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        self.cuda()
    }

    fn bwd(
        &self,
        _: &Tensor,
        _: &Tensor,
        _: &Tensor,
        slope: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let [a, b] = self.slopes(slope)?;
        Ok((a, b))
    }
}

impl CustomOp3 for Made {
    fn name(&self) -> &'static str {
        self.name
    }

    fn cpu_fwd(
        &self,
        _: &CpuStorage,
        _: &Layout,
        _: &CpuStorage,
        _: &Layout,
        _: &CpuStorage,
        _: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        self.cpu()
    }

    fn cuda_fwd(
        &self,
        _: &CudaStorage,
        _: &Layout,
        _: &CudaStorage,
        _: &Layout,
        _: &CudaStorage,
        _: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        self.cuda()
    }

    fn bwd(
        &self,
        _: &Tensor,
        _: &Tensor,
        _: &Tensor,
        _: &Tensor,
        slope: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let [a, b, c] = self.slopes(slope)?;
        Ok((a, b, c))
    }
}

/// Takes a tensor's numbers away and leaves it next to nothing: candle gives them to operations that work in
/// place alone, and a copy would be a passing more over each result.
#[derive(Default)]
struct Taken(Mutex<Option<Storage>>);

impl Taken {
    fn keep(&self, storage: Storage) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(storage);
    }
}

impl InplaceOp1 for Taken {
    fn name(&self) -> &'static str {
        "taken"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, _: &Layout) -> Result<()> {
        self.keep(Storage::Cpu(std::mem::replace(storage, CpuStorage::U8(Vec::new()))));
        Ok(())
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(&self, storage: &mut CudaStorage, _: &Layout) -> Result<()> {
        let device = storage.device.clone();
        let nothing = CudaStorage::wrap_cuda_slice(device.alloc_zeros::<u8>(1)?, device);
        self.keep(Storage::Cuda(std::mem::replace(storage, nothing)));
        Ok(())
    }
}
