//! A module whose reader of JSON gets any bytes: see ../json_test.go.

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
    name = "json";
}

/// Returns the length of the first element of an array, 0 if there is none.
#[no_mangle]
pub unsafe extern "C" fn scan(ptr: *const u8, n: u32) -> u32 {
    let text = core::slice::from_raw_parts(ptr, n as usize);
    kubewasm::Call::with(|call| kubewasm::json::Value::of(call, text).elements().next().map_or(0, |v| v.raw().len() as u32))
}
