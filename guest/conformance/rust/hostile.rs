//! A module whose readers get any bytes: see ../hostile_test.go.

#[allow(dead_code)]
mod walk;

kubewasm::config! {
    struct Guest;
}

impl kubewasm::hooks::Hook for Guest {
    fn decide(&self, _: kubewasm::hooks::Request<'_>, _: &mut kubewasm::hooks::Decision) -> Result<(), String> {
        Ok(())
    }
}

kubewasm::plugin! {
    Guest: Hook;
    name = "hostile";
}

/// Returns room for `n` bytes, which `walk` gives back.
#[no_mangle]
pub extern "C" fn room(n: u32) -> *mut u8 {
    Box::into_raw(vec![0u8; n as usize].into_boxed_slice()) as *mut u8
}

/// Reads the bytes as an object in protobuf, or in JSON if `json` is 1.
#[no_mangle]
pub unsafe extern "C" fn walk(ptr: *mut u8, n: u32, json: u32) -> u32 {
    let bytes = Vec::from_raw_parts(ptr, n as usize, n as usize);
    let read = if json == 1 { walk::json(&bytes) } else { walk::proto(&bytes) };
    read as u32
}

/// Returns the length of the first element of an array, 0 if there is none.
#[no_mangle]
pub unsafe extern "C" fn scan(ptr: *const u8, n: u32) -> u32 {
    let array = kubewasm::json::Value::of(core::slice::from_raw_parts(ptr, n as usize));
    array.elements().next().map_or(0, |v| v.raw().len() as u32)
}
