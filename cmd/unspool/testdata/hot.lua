-- hot.lua TIMES: traces, or the interpreter, that touch TIMES fresh pages each time that a line comes.
local ffi = require('ffi')
ffi.cdef 'void *mmap(void *, size_t, int, int, int, long); int madvise(void *, size_t, int);'
local times = tonumber(arg[1])
local function pages(n)
  local p = ffi.C.mmap(nil, 4096 * (n + 1), 3, 0x22, -1, 0)
  ffi.C.madvise(p, 4096 * (n + 1), 15) -- no huge pages
  return ffi.cast('uint8_t *', p)
end
local function leaf(a, n) local s = 0 for i = 0, n - 1 do a[i * 4096] = 1 s = s + a[i * 4096] end return s end
local function middle(a, n, deep) if deep == 0 then return leaf(a, n) end return middle(a, n, deep - 1) + 1 end
local total, few = 0, pages(3)
for i = 1, 300 do total = total + middle(few, 3, 8) end
local some = pages(200)
for i = 1, 20 do total = total + middle(some, 200, 8) end
print('ready') io.flush()
while io.read() do
  total = total + middle(pages(times), times, 8)
  print('done') io.flush()
end
