-- Runs traces, the interpreter, and C functions called from both.
local function leaf(a, b) local s = 0 for i = 1, #a do s = (s * 31 + a[i] * b) % 65537 end return s end
local function middle(a, n) if n == 0 then return leaf(a, 7) end return middle(a, n - 1) + leaf(a, n) end
local data = {} for i = 1, 500 do data[i] = i end
local total = 0
local function turn()
  for i = 1, 20 do total = (total + middle(data, 8)) % 65537 end
  local s = {} for i = 1, 100 do s[i] = tostring(i * total) end
  table.sort(s, function(x, y) return x > y end)
  total = total + #table.concat(s, ','):gsub('%d', 'x')
end
for i = 1, 20 do turn() end
print('ready') io.flush()
local stop = os.time() + 120
while os.time() < stop do turn() end
