PRAGMA journal_mode = OFF;
CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, price REAL, kind INTEGER);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300000)
INSERT INTO item SELECT i, printf('item %d of %x', i, i * 7919), i * 0.37 % 100, i % 97 FROM n;
CREATE INDEX item_name ON item (name);
SELECT kind, count(*), avg(price), max(name) FROM item GROUP BY kind ORDER BY 3 DESC;
SELECT count(*) FROM item WHERE name LIKE '%9a%';
SELECT a.id, b.name FROM item a JOIN item b ON b.name = 'item ' || a.id || ' of ' || printf('%x', a.id * 7919) WHERE a.id % 3 = 0;
SELECT json_group_array(json_object('id', id, 'name', upper(name))) FROM item WHERE id < 100000;
SELECT id, row_number() OVER (PARTITION BY kind ORDER BY price) FROM item ORDER BY price, name;
UPDATE item SET name = replace(name, 'item', 'thing') WHERE kind < 30;
