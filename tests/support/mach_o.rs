//! The checks of a library that a Mac's loader and kernel make, repeated without a Mac. The loader's source is open:
//! <https://github.com/apple-oss-distributions/dyld>, in `mach_o/UnsafeHeader.cpp` and `mach_o/Image.cpp`.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::Command;

use object::macho::{
    CS_ADHOC, CS_HASHTYPE_SHA256, LC_CODE_SIGNATURE, LC_LOAD_DYLIB, MH_DYLIB, MH_TWOLEVEL, PLATFORM_MACOS,
    VM_PROT_EXECUTE, VM_PROT_READ, VM_PROT_WRITE,
};
use object::read::macho::{CodeSignature, LoadCommandVariant, MachHeader, MachOFile64, Segment};
use object::{Architecture, BigEndian, ExportTarget, LittleEndian as Little, Object};

use super::programs::output_and_errors as output;

const OLDEST_MACOS: u32 = 11 << 16;
const NAME: &str = "@rpath/libredis_cell.dylib";
const NEEDED: [&str; 1] = ["/usr/lib/libSystem.B.dylib"];
const ENTRY_POINTS: [&[u8]; 2] = [b"_RedisModule_OnLoad", b"_RedisModule_OnUnload"];

/// Checks that a Mac with this processor would load the library. The error is the first reason why it would not.
pub fn is_loadable(library: &Path, processor: Architecture) -> Result<(), Box<dyn Error>> {
    let data = &fs::read(library)?[..];
    let file = MachOFile64::<Little>::parse(data)?;
    let header = file.macho_header();
    require(file.architecture() == processor, format!("it is for {:?}", file.architecture()))?;
    let is_library = header.filetype(Little) == MH_DYLIB && header.flags(Little).0 & MH_TWOLEVEL.0 != 0;
    require(is_library, "it is not a library with names of two levels")?;

    let (mut segments, mut needed, mut name, mut oldest, mut signature) = (vec![], vec![], None, None, None);
    let mut commands = file.macho_load_commands()?;
    while let Some(command) = commands.next()? {
        match command.variant()? {
            LoadCommandVariant::Segment64(segment, _) => segments.push(segment),
            LoadCommandVariant::IdDylib(library) => {
                name = Some(String::from_utf8_lossy(command.string(Little, library.dylib.name)?))
            }
            LoadCommandVariant::Dylib(library) => {
                require(command.cmd() == LC_LOAD_DYLIB, "it loads a library otherwise than by LC_LOAD_DYLIB")?;
                needed.push(String::from_utf8_lossy(command.string(Little, library.dylib.name)?));
            }
            LoadCommandVariant::BuildVersion(version, _) => {
                require(version.platform.get(Little) == PLATFORM_MACOS, "it is not for macOS")?;
                oldest = Some(version.minos.get(Little).0);
            }
            LoadCommandVariant::LinkeditData(place) if command.cmd() == LC_CODE_SIGNATURE => {
                signature = Some((place.dataoff.get(Little), place.code_signature(Little, data)?));
            }
            _ => {}
        }
    }
    require(name.as_deref() == Some(NAME), format!("its name is {name:?}"))?;
    require(needed == NEEDED, format!("it needs {needed:?}"))?;
    require(oldest == Some(OLDEST_MACOS), format!("it is for macOS {oldest:x?}"))?;
    require(file.mach_uuid()?.is_some(), "it has no UUID")?;

    // A segment begins on a page boundary, in memory and in the file, after the segment before it.
    let page = if processor == Architecture::Aarch64 { 0x4000 } else { 0x1000 };
    let (mut address, mut offset) = (0, 0);
    for segment in &segments {
        let name = String::from_utf8_lossy(segment.name());
        let (start, (from, length)) = (segment.vmaddr(Little), segment.file_range(Little));
        require(
            start % page == 0 && from % page == 0,
            format!("the segment {name} does not begin on a page boundary"),
        )?;
        require(start >= address && from >= offset, format!("the segment {name} overlaps the one before it"))?;
        require(length <= segment.vmsize(Little), format!("the segment {name} is larger in the file than in memory"))?;
        (address, offset) = (start + segment.vmsize(Little), from + length);
        let rights = match segment.name() {
            b"__TEXT" => VM_PROT_READ.0 | VM_PROT_EXECUTE.0,
            b"__LINKEDIT" => VM_PROT_READ.0,
            _ => VM_PROT_READ.0 | VM_PROT_WRITE.0,
        };
        require(segment.initprot.get(Little).0 == rights, format!("the segment {name} has the wrong rights"))?;
    }
    let [first, .., last] = segments[..] else { return Err("it has no segments".into()) };
    require(
        first.name() == b"__TEXT" && first.fileoff(Little) == 0,
        "the first segment is not __TEXT, or does not begin the file",
    )?;
    let ends = last.name() == b"__LINKEDIT" && offset == data.len() as u64;
    require(ends, "the file does not end where __LINKEDIT does")?;

    let text = first.vmaddr(Little)..first.vmaddr(Little) + first.vmsize(Little);
    let exports = file.exports()?.collect::<Result<Vec<_>, _>>()?;
    for entry in ENTRY_POINTS {
        let found = exports.iter().any(|export| {
            let own = matches!(export.target(), ExportTarget::Address { address } if text.contains(&address));
            own && export.name().into_name() == Some(entry)
        });
        require(found, format!("it does not export {}", String::from_utf8_lossy(entry)))?;
    }
    for import in file.imports()? {
        import?;
    }

    // A Mac with an Apple processor executes only signed code.
    require(signature.is_some() || processor != Architecture::Aarch64, "it is not signed")?;
    signature.map_or(Ok(()), |(start, signature)| is_signed(library, start, signature))
}

/// Checks that the ad-hoc signature at this offset holds the hash of each page before it.
fn is_signed(library: &Path, start: u32, signature: CodeSignature) -> Result<(), Box<dyn Error>> {
    let mut blobs = signature.blobs();
    let directory = blobs.next()?.ok_or("the signature is empty")?.code_directory()?;
    let directory = directory.ok_or("the signature does not begin with its code directory")?;
    let header = directory.header();
    require(header.flags.get(BigEndian).0 & CS_ADHOC.0 != 0, "the signature is not ad hoc")?;
    require(header.hash_type == CS_HASHTYPE_SHA256, "the signature's hashes are not of SHA-256")?;
    require(directory.code_limit() == u64::from(start), "the signature does not cover exactly the bytes before it")?;
    let pages = "head --bytes=$1 \"$0\" | split --bytes=$2 --filter=sha256sum";
    let mut pages_of = Command::new("sh");
    pages_of.args(["-c", pages]).arg(library).arg(start.to_string()).arg((1 << header.page_size).to_string());
    let sums = output(&mut pages_of);
    let sums: Vec<_> = sums.lines().map(|line| line.trim_end_matches(" -").trim()).collect();
    require(sums.len() == header.n_code_slots.get(BigEndian) as usize, "a page is not signed")?;
    for (page, sum) in (0..).zip(sums) {
        let signed: String = directory.code_hash(page)?.iter().map(|byte| format!("{byte:02x}")).collect();
        require(signed == sum, format!("page {page} has another hash than the signature says"))?;
    }
    Ok(())
}

fn require(holds: bool, why_not: impl Into<String>) -> Result<(), Box<dyn Error>> {
    if holds { Ok(()) } else { Err(why_not.into().into()) }
}
